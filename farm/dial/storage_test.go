package dial

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A heardStorage has nothing, and takes down what it is asked.
type heardStorage struct {
	repb.UnimplementedActionCacheServer
	repb.UnimplementedContentAddressableStorageServer
	address string

	mu    sync.Mutex
	heard []string // method instance token
	peers map[string]bool
}

func newHeardStorage(t *testing.T) *heardStorage {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &heardStorage{address: l.Addr().String(), peers: map[string]bool{}}
	s := grpc.NewServer(grpc.UnaryInterceptor(h.hear))
	repb.RegisterActionCacheServer(s, h)
	repb.RegisterContentAddressableStorageServer(s, h)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *heardStorage) hear(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	instance := req.(interface{ GetInstanceName() string }).GetInstanceName()
	token := strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), ",")
	p, _ := peer.FromContext(ctx)
	h.mu.Lock()
	h.heard = append(h.heard, strings.TrimSpace(method+" "+instance+" "+token))
	h.peers[p.Addr.String()] = true
	h.mu.Unlock()
	return handler(ctx, req)
}

// FindMissingBlobs implements repb.ContentAddressableStorageServer.
func (h *heardStorage) FindMissingBlobs(context.Context, *repb.FindMissingBlobsRequest) (*repb.FindMissingBlobsResponse, error) {
	return &repb.FindMissingBlobsResponse{}, nil
}

// GetActionResult implements repb.ActionCacheServer.
func (h *heardStorage) GetActionResult(context.Context, *repb.GetActionResultRequest) (*repb.ActionResult, error) {
	return &repb.ActionResult{}, nil
}

// UpdateActionResult implements repb.ActionCacheServer.
func (h *heardStorage) UpdateActionResult(_ context.Context, r *repb.UpdateActionResultRequest) (*repb.ActionResult, error) {
	return r.GetActionResult(), nil
}

func TestStorageOfTwoEndpoints(t *testing.T) {
	blobs, results := newHeardStorage(t), newHeardStorage(t)
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := (&Client{}).OpenStorage("grpc://"+blobs.address+"?instance=prod/eu&connections=3",
		"grpc://"+results.address+"?token-file="+secret, casclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := digest.Of(digest.SHA256, []byte("x"))
	main := s.WithInstance("main", digest.SHA256)
	for range 6 {
		if _, err := main.FindMissing(t.Context(), []digest.Digest{d}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.FindMissing(t.Context(), []digest.Digest{d}); err != nil {
		t.Fatal(err)
	}
	if _, err := main.GetActionResult(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		where *heardStorage
		want  []string
		peers int
	}{
		{blobs, []string{"FindMissingBlobs prod/eu", "FindMissingBlobs prod/eu/main"}, 3},
		{results, []string{"GetActionResult prod/eu/main Bearer abc"}, 1},
	} {
		slices.Sort(test.where.heard)
		if got := slices.Compact(test.where.heard); !slices.Equal(got, test.want) || len(test.where.peers) != test.peers {
			t.Errorf("%q over %d connections, want %q over %d", got, len(test.where.peers), test.want, test.peers)
		}
	}
}

func TestEndpoints(t *testing.T) {
	e, err := parseEndpoint("grpcs://h:1?compression=off&retry=5m&stall=10s", casclient.Options{MaxConcurrent: 7})
	want := casclient.Options{MaxConcurrent: 7, NoCompression: true, RetryFor: 5 * time.Minute, StallAfter: 10 * time.Second}
	if err != nil || e.target != "grpcs://h:1" || e.connections != 1 || e.options != want {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := parseEndpoint("grpc://h:1?compression=zstd", casclient.Options{NoCompression: true}); err != nil || e.options.NoCompression {
		t.Errorf("%+v, %v", e, err)
	}
	for spec, off := range map[string]bool{
		"grpc://127.0.0.1:1": true, "localhost:1": true, "grpcs://[::1]:1,127.0.0.2:1": true, "grpc://127.0.0.1:1?compression=zstd": false,
		"grpc://127.0.0.1:1,h:1": false, "h:1": false, "": false,
	} {
		near := casclient.Options{NoCompression: (&Client{}).isNear(spec)}
		if e, err := parseEndpoint(spec, near); err != nil || e.options.NoCompression != off {
			t.Errorf("%s: %+v, %v; want no compression %v", spec, e, err, off)
		}
	}
	for spec, want := range map[string]string{
		"grpc://h:1?instence=x":                    `there is no option instence; here are ["compression" "connections" "instance" "retry" "stall" "token-file"]`,
		"grpc://h:1?instance=/x":                   `option instance: invalid instance name "/x"`,
		"grpc://h:1?instance=":                     "option instance: it is empty",
		"grpc://h:1?connections=0":                 "from 1 to 64",
		"grpc://h:1?connections=many":              "option connections: ",
		"grpc://h:1?compression=on":                "zstd or off",
		"grpc://h:1?retry=5":                       "option retry: time: missing unit",
		"grpc://h:1?stall=-1s":                     "has to be positive",
		"grpc://h:1?connections=1&connections=2":   "option connections is here twice",
		"ftp://h:1":                                "only grpc://HOST:PORT",
		"grpcs://h:1?token-file=/nowhere/at/all":   "/nowhere/at/all",
		"grpc://192.0.2.1:1?token-file=storage.go": "in the clear",
	} {
		if _, err := (&Client{}).OpenStorage(spec, "", casclient.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	for storage, results := range map[string]string{"grpc://h:1": "grpc://127.0.0.1:2", "grpc://127.0.0.1:1": "grpc://h:2", "127.0.0.1:1?compression=zstd": "127.0.0.1:2"} {
		s, err := (&Client{}).OpenStorage(storage, results, casclient.Options{})
		if err != nil {
			t.Errorf("%s, results at %s: %v", storage, results, err)
		} else if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := (&Client{}).OpenStorage("grpc://h:1", "grpc://h:2?instance=x", casclient.Options{}); err == nil || !strings.Contains(err.Error(), "tuning.action_cache: ") {
		t.Errorf("an action cache with options of storage: %v", err)
	}
}
