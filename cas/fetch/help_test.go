package fetch

import (
	"context"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/castest"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
)

// A testStore is a store on disk and its Group.
type testStore struct {
	*disk.Store
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
	store, err := disk.Open(dir, disk.Options{MaxBytes: o.MaxBytes})
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

// storeText returns the text of d, or the error.
func storeText(s *testStore, d digest.Digest) string {
	b, err := s.ReadBlob(context.Background(), d)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

func storeWantConsistent(t *testing.T, s *testStore) {
	t.Helper()
	castest.WantConsistent(t, s.Store)
}

func clientOf(f *servertest.Farm, o client.Options) *client.Client { return client.New(f.Conn, o) }

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
