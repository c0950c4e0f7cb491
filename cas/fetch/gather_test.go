package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
)

func storeManyTexts(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("text %d", i)
	}
	return texts
}

// storeOncePerBlob fails if two calls asked for the same blob.
func (u *storeUpstream) storeOncePerBlob(t *testing.T, blobs int) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	all := slices.Concat(u.calls...)
	if len(all) != blobs || len(digest.Distinct(all)) != blobs {
		t.Errorf("%d blobs asked for, %d of them distinct; want %d", len(all), len(digest.Distinct(all)), blobs)
	}
}

func TestStoreGathersColdOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		texts := storeManyTexts(500)
		u, ds := storeNewUpstream(texts...)
		u.gate = make(chan struct{})
		r := s.Through(u)
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				if i%2 == 0 {
					b, err := r.ReadBlob(context.Background(), ds[i/2])
					if string(b) != texts[i/2] || err != nil {
						t.Errorf("read %q, %v", b, err)
					}
					return
				}
				file, err := r.OpenBlob(context.Background(), ds[i/2])
				if err != nil {
					t.Error(err)
					return
				}
				if b, err := io.ReadAll(file); string(b) != texts[i/2] || err != nil {
					t.Errorf("read %q, %v", b, err)
				}
				_ = file.Close()
			})
		}
		synctest.Wait()
		if n := len(u.storeSizes()); n > maxGathering {
			t.Errorf("%d calls in flight", n)
		}
		close(u.gate)
		wg.Wait()
		if n := len(u.storeSizes()); n > 2*maxGathering {
			t.Errorf("%d calls of sizes %v", n, u.storeSizes())
		}
		u.storeOncePerBlob(t, 500)
		storeWantConsistent(t, s)
	})
}

// A caller that asks while few calls are in flight does not wait for any of them.
func TestStoreLoneAskGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, ds := storeNewUpstream(storeManyTexts(maxGathering + 2)...)
		u.gate = make(chan struct{})
		r := s.Through(u)
		var wg sync.WaitGroup
		for i, d := range ds {
			wg.Go(func() {
				if err := r.Load(context.Background(), []digest.Digest{d}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			if n := len(u.storeSizes()); n != min(i+1, maxGathering) {
				t.Errorf("%d calls after %d asks", n, i+1)
			}
		}
		close(u.gate)
		wg.Wait()
		if got := u.storeSizes(); got[len(got)-1] != 2 {
			t.Errorf("calls of sizes %v: those that waited did not go together", got)
		}
	})
}

func TestStoreGatheredCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		texts := make([]string, 20)
		for i := range texts {
			texts[i] = strings.Repeat(string(rune('a'+i)), cas.StreamAbove)
		}
		u, ds := storeNewUpstream(texts...)
		u.gate = make(chan struct{})
		r := s.Through(u)
		var wg sync.WaitGroup
		for _, d := range ds {
			wg.Go(func() {
				if err := r.Load(context.Background(), []digest.Digest{d}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(u.gate)
		wg.Wait()
		for _, n := range u.storeSizes() {
			if n > cas.BatchBytes/cas.StreamAbove {
				t.Errorf("calls of sizes %v: more than a message holds", u.storeSizes())
				break
			}
		}
		u.storeOncePerBlob(t, len(ds))
	})
}

// storeFill has maxGathering calls in flight, which end when the gate opens.
func storeFill(t *testing.T, r *ReadThrough, ds []digest.Digest, wg *sync.WaitGroup) {
	for _, d := range ds[:maxGathering] {
		wg.Go(func() {
			if err := r.Load(context.Background(), []digest.Digest{d}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // two that ask together would go together
	}
}

func TestStoreLargeBlobsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, ds := storeNewUpstream(append(storeManyTexts(maxGathering+1), strings.Repeat("x", cas.StreamAbove+1))...)
		u.gate = make(chan struct{})
		r := s.Through(u)
		var wg sync.WaitGroup
		storeFill(t, r, ds, &wg)
		for _, d := range ds[maxGathering:] {
			wg.Go(func() {
				if err := r.Load(context.Background(), []digest.Digest{d}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := len(u.storeSizes()); n != maxGathering+1 {
			t.Errorf("%d calls, want one more for the large blob", n)
		}
		close(u.gate)
		wg.Wait()
	})
}

func TestStoreCancelledAskerLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		texts := storeManyTexts(maxGathering + 3)
		u, ds := storeNewUpstream(texts...)
		u.gate = make(chan struct{})
		r := s.Through(u)
		var wg sync.WaitGroup
		storeFill(t, r, ds, &wg)
		alone, shared, again := ds[maxGathering], ds[maxGathering+1], ds[maxGathering+2]
		ctx, cancel := context.WithCancel(context.Background())
		for _, d := range []digest.Digest{alone, shared, again} {
			wg.Go(func() {
				if err := r.Load(ctx, []digest.Digest{d}); !errors.Is(err, context.Canceled) {
					t.Errorf("who left got %v", err)
				}
			})
		}
		synctest.Wait()
		stays := func(d digest.Digest) {
			wg.Go(func() {
				if err := r.Load(context.Background(), []digest.Digest{d}); err != nil {
					t.Errorf("who stayed got %v", err)
				}
			})
			synctest.Wait()
		}
		stays(shared)
		cancel()
		synctest.Wait()
		stays(again)
		close(u.gate)
		wg.Wait()
		u.storeOncePerBlob(t, maxGathering+2)
		if s.Contains(alone) {
			t.Error("fetched what nobody waits for")
		}
		if len(u.ended) > 0 {
			t.Error("a call was cancelled that others wait for")
		}
		storeWantConsistent(t, s)
	})
}

func TestStoreCloseEndsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, ds := storeNewUpstream(storeManyTexts(20)...)
		u.gate = make(chan struct{})
		r := s.Through(u)
		var wg sync.WaitGroup
		for _, d := range ds {
			wg.Go(func() {
				if err := r.Load(context.Background(), []digest.Digest{d}); err == nil {
					t.Error("loaded from a closed store")
				}
			})
		}
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// Blobs that travel together do not share their errors.
func TestStoreGatheredBlobsFailAlone(t *testing.T) {
	f := servertest.Start(t, servertest.Config{Unary: failEntry("damaged", codes.DataLoss)})
	fine := f.Put(t, digest.SHA256, []byte("fine"))
	damaged := f.Put(t, digest.SHA256, []byte("damaged"))
	missing := digest.Of(digest.SHA256, []byte("missing"))
	s := storeOpen(t, t.TempDir(), storeOptions{})
	r := s.Through(clientOf(f, client.Options{}))
	asked, err := r.ask(t.Context(), []digest.Digest{fine, damaged, missing})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, cas.ErrCorrupt, cas.ErrNotFound} {
		<-asked.flights[i].done
		if !errors.Is(asked.flights[i].err, want) {
			t.Errorf("blob %d: %v, want %v", i, asked.flights[i].err, want)
		}
		s.leave(asked.flights[i])
	}
	if err := r.Load(t.Context(), []digest.Digest{damaged, missing}); !errors.Is(err, cas.ErrCorrupt) ||
		errors.Is(err, cas.ErrNotFound) {
		t.Errorf("both: %v, want the worse", err)
	}
}
