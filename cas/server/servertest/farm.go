package servertest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/rpctest"
)

// A Config describes the server of a test. The interceptors inject faults.
type Config struct {
	Dir            string       // of the store; one of its own if empty
	Store          disk.Options // a zero MaxBytes is 256 MiB
	Server         server.Options
	Unary          grpc.UnaryServerInterceptor
	Stream         grpc.StreamServerInterceptor
	NoCapabilities bool
}

// A Farm is a server over a fresh store, and a connection to it. They end with the test.
type Farm struct {
	Store   *disk.Store
	Server  *server.Server
	Conn    *grpc.ClientConn
	Blobs   repb.ContentAddressableStorageClient
	Streams bytestream.ByteStreamClient
}

type capabilities struct {
	repb.UnimplementedCapabilitiesServer
	cache *repb.CacheCapabilities
}

// GetCapabilities implements repb.CapabilitiesServer.
func (c *capabilities) GetCapabilities(
	context.Context, *repb.GetCapabilitiesRequest,
) (*repb.ServerCapabilities, error) {
	return &repb.ServerCapabilities{CacheCapabilities: c.cache}, nil
}

// Start returns a Farm.
func Start(t testing.TB, c Config) *Farm {
	t.Helper()
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "blobs")
	}
	if c.Store.MaxBytes == 0 {
		c.Store.MaxBytes = 256 << 20
	}
	store, err := disk.Open(c.Dir, c.Store)
	if err != nil {
		t.Fatal(err)
	}
	actions, err := disk.OpenActions(filepath.Join(t.TempDir(), "actions"), disk.ActionsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := &Farm{Store: store, Server: server.New(store, actions, c.Server)}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(server.MaxMessageBytes)}
	if c.Unary != nil {
		options = append(options, grpc.UnaryInterceptor(c.Unary))
	}
	if c.Stream != nil {
		options = append(options, grpc.StreamInterceptor(c.Stream))
	}
	g := grpc.NewServer(options...)
	f.Server.Register(g)
	if !c.NoCapabilities {
		repb.RegisterCapabilitiesServer(g, &capabilities{cache: f.Server.CacheCapabilities()})
	}
	t.Cleanup(func() {
		if err := errors.Join(actions.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	f.Conn = rpctest.Serve(t, g)
	f.Blobs = repb.NewContentAddressableStorageClient(f.Conn)
	f.Streams = bytestream.NewByteStreamClient(f.Conn)
	return f
}

// Put stores b on the server's side.
func (f *Farm) Put(t testing.TB, fn digest.Function, b []byte) digest.Digest {
	t.Helper()
	d := digest.Of(fn, b)
	if err := f.Store.PutBytes(t.Context(), d, b); err != nil {
		t.Fatal(err)
	}
	return d
}

// PutMessage stores m on the server's side.
func (f *Farm) PutMessage(t testing.TB, m proto.Message) digest.Digest {
	t.Helper()
	d, b, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	return f.Put(t, d.Function(), b)
}

// Read reads a resource to its end.
func (f *Farm) Read(ctx context.Context, name string) ([]byte, error) {
	stream, err := f.Streams.Read(ctx, &bytestream.ReadRequest{ResourceName: name})
	if err != nil {
		return nil, err
	}
	var all []byte
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, r.GetData()...)
	}
}

// Write sends rs, and returns how many bytes the server says that it has.
func (f *Farm) Write(ctx context.Context, rs ...*bytestream.WriteRequest) (int64, error) {
	stream, err := f.Streams.Write(ctx)
	if err != nil {
		return 0, err
	}
	for _, r := range rs {
		if err := stream.Send(r); err != nil {
			break // the answer says why
		}
	}
	resp, err := stream.CloseAndRecv()
	return resp.GetCommittedSize(), err
}

// Bytes returns n bytes, most of them compressible, that differ for each seed.
func Bytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b[:n/8])
	// The rest is runs of 64 equal bytes. It is copied, as the race detector looks at each byte of a loop.
	runs := make([]byte, 256*64)
	for i := range runs {
		runs[i] = byte(i >> 6)
	}
	for i := n / 8; i < n; {
		i += copy(b[i:], runs[i%len(runs):])
	}
	return b
}
