package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A testStore is a store on disk and its Group.
type testStore struct {
	*cas.Store
	*Group
}

// Close ends both.
func (s *testStore) Close() error {
	s.Group.Close()
	return s.Store.Close()
}

type storeOptions struct {
	MaxBytes, ArriveAbove, DirectoryCacheBytes int64
}

func storeOpen(t testing.TB, dir string, o storeOptions) *testStore {
	t.Helper()
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 30
	}
	store, err := cas.OpenStore(dir, cas.StoreOptions{MaxBytes: o.MaxBytes})
	if err != nil {
		t.Fatal(err)
	}
	group, err := NewGroup(store, Options{ArriveAbove: o.ArriveAbove, DirectoryCacheBytes: o.DirectoryCacheBytes})
	if err != nil {
		t.Fatal(err)
	}
	s := &testStore{store, group}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// storePut stores text and returns its digest.
func storePut(t testing.TB, s *testStore, text string) digest.Digest {
	t.Helper()
	d := digest.Of(digest.SHA256, []byte(text))
	if err := s.Put(context.Background(), d, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return d
}

// storeText returns the text of d, or how it is not there.
func storeText(s *testStore, d digest.Digest) string {
	b, err := s.ReadBlob(context.Background(), d)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

// storeWantConsistent checks that the store has what is on disk, and nothing pinned or reserved, when
// nothing is going on.
func storeWantConsistent(t *testing.T, s *testStore) {
	t.Helper()
	var blobs, size int64
	err := filepath.WalkDir(s.Dir(), func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(s.Dir(), path)
		if d, ok := cas.ParseBlobPath(name); ok && err == nil {
			blobs, size = blobs+1, size+d.SizeBytes()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.Bytes != size || got.Blobs != blobs || got.ReservedBytes != 0 || got.PinnedBytes != 0 || got.Bytes > got.MaxBytes {
		t.Errorf("store: %+v; disk: %d bytes, %d blobs", got, size, blobs)
	}
	if names, err := os.ReadDir(s.TempDir()); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// netConfig says what server a test wants. The interceptors inject faults.
type netConfig struct {
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor
}

// A netFarm is a server over a fresh store, and a connection to it.
type netFarm struct {
	store *cas.Store
	conn  *grpc.ClientConn
}

func netStart(t testing.TB, c netConfig) *netFarm {
	t.Helper()
	store, err := cas.OpenStore(filepath.Join(t.TempDir(), "blobs"), cas.StoreOptions{MaxBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	actions, err := cas.OpenActions(filepath.Join(t.TempDir(), "actions"), cas.ActionsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(cas.MaxMessageBytes)}
	if c.unary != nil {
		options = append(options, grpc.UnaryInterceptor(c.unary))
	}
	if c.stream != nil {
		options = append(options, grpc.StreamInterceptor(c.stream))
	}
	g := grpc.NewServer(options...)
	cas.NewServer(store, actions, cas.ServerOptions{}).Register(g)
	t.Cleanup(func() {
		if err := errors.Join(actions.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	pipe := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- g.Serve(pipe) }()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &netFarm{store, conn}
}

func (f *netFarm) client(o cas.ClientOptions) *cas.Client { return cas.NewClient(f.conn, o) }

// put stores b on the server's side.
func (f *netFarm) put(t testing.TB, fn digest.Function, b []byte) digest.Digest {
	t.Helper()
	d := digest.Of(fn, b)
	if err := f.store.PutBytes(t.Context(), d, b); err != nil {
		t.Fatal(err)
	}
	return d
}

// netBytes returns n bytes, most of them compressible, that differ for each seed.
func netBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b[:n/8])
	for i := n / 8; i < n; i++ {
		b[i] = byte(i >> 6)
	}
	return b
}

// A netSink gathers what a Fetch delivers.
type netSink struct {
	mu  sync.Mutex
	got map[digest.Digest][]byte
}

func (s *netSink) take(d digest.Digest, r io.Reader) error {
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.got == nil {
		s.got = map[digest.Digest][]byte{}
	}
	s.got[d] = b.Bytes()
	return nil
}

// failEntry has the server refuse one blob of a batch.
func failEntry(text string, code codes.Code) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
		m, err := call(ctx, r)
		answer, _ := m.(*repb.BatchReadBlobsResponse)
		for _, e := range answer.GetResponses() {
			if string(e.GetData()) == text {
				e.Data, e.Status = nil, status.New(code, text).Proto()
			}
		}
		return m, err
	}
}
