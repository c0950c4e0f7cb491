package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A slowStorage is a connection to storage that answers calls of BatchReadBlobs one by one, as
// it is let to.
type slowStorage struct {
	grpc.ClientConnInterface
	blobs map[string][]byte // by hash
	let   chan struct{}

	mu    sync.Mutex
	calls []string // instance name and number of blobs of each; guarded by mu
}

func (s *slowStorage) Invoke(ctx context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	r, isBatch := args.(*repb.BatchReadBlobsRequest)
	if !isBatch {
		return status.Error(codes.Unimplemented, "only batches are read here")
	}
	s.mu.Lock()
	s.calls = append(s.calls, fmt.Sprintf("%s%d", r.GetInstanceName(), len(r.GetDigests())))
	s.mu.Unlock()
	select {
	case <-s.let:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	answer := &repb.BatchReadBlobsResponse{}
	for _, d := range r.GetDigests() {
		e := &repb.BatchReadBlobsResponse_Response{Digest: d, Data: s.blobs[d.GetHash()]}
		if e.Data == nil {
			e.Status = status.New(codes.NotFound, "no such blob").Proto()
		}
		answer.Responses = append(answer.Responses, e)
	}
	proto.Merge(reply.(proto.Message), answer)
	return nil
}

func (s *slowStorage) check(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if fmt.Sprint(s.calls) != fmt.Sprint(want) {
		t.Errorf("calls %v, want %v", s.calls, want)
	}
}

// A gatherTest reads the blobs "0", "1" and so on, which exist, and others.
type gatherTest struct {
	*slowStorage
	client *Client
	reads  sync.WaitGroup
}

func newGatherTest(blobs int) *gatherTest {
	s := &slowStorage{blobs: map[string][]byte{}, let: make(chan struct{})}
	for i := range blobs {
		b := fmt.Append(nil, i)
		s.blobs[digest.Of(digest.SHA256, b).Proto().GetHash()] = b
	}
	return &gatherTest{slowStorage: s, client: New(s, Options{})}
}

// read reads a blob of an instance name and has its bytes, or the error, checked.
func (g *gatherTest) read(ctx context.Context, t *testing.T, instance, blob string, want error) {
	c := g.client.WithInstance(instance, digest.SHA256)
	g.reads.Go(func() {
		b, err := c.Read(ctx, digest.Of(digest.SHA256, []byte(blob)))
		switch {
		case !errors.Is(err, want):
			t.Errorf("read %q: %v, want %v", blob, err, want)
		case err == nil && !bytes.Equal(b, []byte(blob)):
			t.Errorf("read %q: %q", blob, b)
		}
	})
	synctest.Wait()
}

func TestReadsOfSmallBlobsShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatherTest(200)
		for i := range 130 {
			g.read(t.Context(), t, "", fmt.Sprint(i%120), nil)
		}
		g.read(t.Context(), t, "other", "7", nil)
		g.check(t, "1", "1", "other1")
		close(g.let)
		g.reads.Wait()
		if n := len(g.calls); n != 6 {
			t.Errorf("%d calls %v, want 2, 3 for the 128 that came meanwhile, and that of the other instance", n, g.calls)
		}
		if n := len(g.client.link.readings.lines); n != 0 {
			t.Errorf("%d lines are left", n)
		}
	})
}

func TestGatheredReadsFailAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatherTest(5)
		g.blobs[digest.Of(digest.SHA256, []byte("damaged")).Proto().GetHash()] = []byte("garbled")
		g.read(t.Context(), t, "", "0", nil)
		g.read(t.Context(), t, "", "missing", cas.ErrNotFound)
		g.read(t.Context(), t, "", "1", nil)
		g.read(t.Context(), t, "", "absent", cas.ErrNotFound)
		g.read(t.Context(), t, "", "damaged", cas.ErrCorrupt)
		g.read(t.Context(), t, "", "2", nil)
		close(g.let)
		g.reads.Wait()
		g.check(t, "1", "1", "4", "1", "1") // a damaged blob is requested again
	})
}

func TestGatheredReadsOutliveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatherTest(5)
		ctx, leave := context.WithCancel(t.Context())
		g.read(t.Context(), t, "", "0", nil)
		g.read(t.Context(), t, "", "1", nil)
		g.read(ctx, t, "", "2", context.Canceled) // the first of the next call
		g.read(t.Context(), t, "", "3", nil)
		g.let <- struct{}{}
		synctest.Wait()
		g.check(t, "1", "1", "2")
		g.read(ctx, t, "", "4", context.Canceled) // waits
		leave()
		synctest.Wait()
		close(g.let)
		g.reads.Wait()
		if n := len(g.client.link.readings.lines); n != 0 {
			t.Errorf("%d lines are left", n)
		}
	})
}
