package records

import (
	"encoding/hex"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/rpctest"
)

// A buildbarnCache is one of Buildbarn's services, with the encoded request of each of its methods.
type buildbarnCache struct {
	name        string
	serve       func(t *testing.T, store Hints) *grpc.ClientConn
	connect     func(grpc.ClientConnInterface) Hints
	get, update string // methods
	lookUp, set string // requests
	key         func(t *testing.T) Key
	value       string
}

var buildbarnCaches = []buildbarnCache{
	{
		"profiles", fsacServer,
		func(c grpc.ClientConnInterface) Hints { return NewFSAC(c, FSACOptions{}) },
		fsacGet, fsacUpdate, fsacKey, fsacSet, fsacRecord, fsacProfile + fsacStrange,
	},
	{
		"statistics", isccServer,
		func(c grpc.ClientConnInterface) Hints { return NewISCC(c, ISCCOptions{}) },
		isccGet, isccUpdate, isccLookUp, isccSet, isccRecord, isccStats + isccStrange,
	},
}

func TestServersSpeakBuildbarnsBytes(t *testing.T) {
	for _, b := range buildbarnCaches {
		t.Run(b.name, func(t *testing.T) {
			store := NewMemory(0)
			conn := b.serve(t, store)
			call := func(method, request string) (string, codes.Code) {
				in, out := []byte(request), []byte(nil)
				err := conn.Invoke(t.Context(), method, &in, &out, grpc.ForceCodec(rawCodec{}))
				return string(out), status.Code(err)
			}
			if _, code := call(b.get, b.lookUp); code != codes.NotFound {
				t.Errorf("get of a missing record: %s", code)
			}
			if answer, code := call(b.update, b.set); answer != "" || code != codes.OK {
				t.Errorf("update: %x, %s", answer, code)
			}
			expect(t, store, b.key(t), []byte(b.value))
			if answer, code := call(b.get, b.lookUp); answer != b.value || code != codes.OK {
				t.Errorf("get: %x, %s", answer, code)
			}
		})
	}
}

func TestClientsSpeakBuildbarnsBytes(t *testing.T) {
	for _, b := range buildbarnCaches {
		t.Run(b.name, func(t *testing.T) {
			var mu sync.Mutex
			var calls []string
			server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}),
				grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
					method, _ := grpc.MethodFromServerStream(stream)
					var request, answer []byte
					if err := stream.RecvMsg(&request); err != nil {
						return err
					}
					mu.Lock()
					calls = append(calls, method+" "+hex.EncodeToString(request))
					mu.Unlock()
					if method == b.get {
						answer = []byte(b.value)
					}
					return stream.SendMsg(&answer)
				}))
			s, k := b.connect(rpctest.Serve(t, server)), b.key(t)
			put(t, s, k, []byte(b.value))
			expect(t, s, k, []byte(b.value))
			mu.Lock()
			defer mu.Unlock()
			want := []string{
				b.update + " " + hex.EncodeToString([]byte(b.set)), b.get + " " + hex.EncodeToString([]byte(b.lookUp)),
			}
			if !slices.Equal(calls, want) {
				t.Errorf("calls %q, want %q", calls, want)
			}
		})
	}
}
