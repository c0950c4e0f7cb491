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
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// storePatient is a storeUpstream that has calls which stand behind made by
// another one.
type storePatient struct {
	*storeUpstream
	behind *storeUpstream
}

func (p *storePatient) Behind() cas.Fetcher { return p.behind }

// storeNewPatient returns an upstream whose calls that stand behind are held: each
// token in their gate lets one go, and closing it all.
func storeNewPatient(texts ...string) (*storePatient, []digest.Digest) {
	front, ds := storeNewUpstream(texts...)
	behind, _ := storeNewUpstream(texts...)
	behind.gate = make(chan struct{})
	return &storePatient{front, behind}, ds
}

// storeBehind starts a Prefetch. The function that it returns waits for the end.
func storeBehind(r *ReadThrough, ds ...digest.Digest) (cancel func(), wait func() ([]digest.Digest, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	var got []digest.Digest
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = r.Prefetch(ctx, ds)
	}()
	synctest.Wait()
	return cancel, func() ([]digest.Digest, error) {
		<-done
		cancel()
		return got, err
	}
}

func storeManyDigests(n int) []digest.Digest {
	ds := make([]digest.Digest, n)
	for i := range ds {
		ds[i] = digest.Of(digest.SHA256, fmt.Appendf(nil, "blob %d", i))
	}
	return ds
}

func TestStorePrefetches(t *testing.T) {
	s := storeOpen(t, t.TempDir(), storeOptions{ArriveAbove: 2 * cas.StreamAbove})
	texts := append(storeManyTexts(5000), strings.Repeat("x", cas.StreamAbove+1), strings.Repeat("y", 2*cas.StreamAbove+1))
	u, ds := storeNewUpstream(texts...)
	r := s.Through(u)
	storePut(t, s, texts[7])
	got, err := r.Prefetch(t.Context(), append(slices.Concat(ds, ds), digest.SHA256.Empty()))
	if err != nil || len(got) != len(ds)-1 || slices.Contains(got, ds[7]) {
		t.Errorf("%d blobs came, want all but one of %d, %v", len(got), len(ds), err)
	}
	for _, d := range ds {
		if !s.Contains(d) {
			t.Fatalf("%s did not come", d)
		}
	}
	u.storeOncePerBlob(t, len(ds)-1)
	if n := len(u.calls); n > 12 {
		t.Errorf("%d calls", n)
	}
	if got, err := r.Prefetch(t.Context(), ds); err != nil || len(got) > 0 {
		t.Errorf("again: %d blobs came, %v", len(got), err)
	}
	if s.Stats().PinnedBytes != 0 {
		t.Errorf("%d bytes are pinned", s.Stats().PinnedBytes)
	}
	storeWantConsistent(t, s)
}

// A blob that a caller asks for is in the next call, however much is queued for prefetching.
func TestStoreOpensOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		texts := storeManyTexts(1)
		u, ds := storeNewPatient(texts...)
		r := s.Through(u)
		many := storeManyDigests(20_000)
		u.texts[many[19_000]] = "blob 19000"
		cancel, wait := storeBehind(r, many...)
		if n := len(u.behind.storeSizes()); n != smallCalls {
			t.Errorf("%d calls of what nobody waits for, want %d", n, smallCalls)
		}
		for i, d := range []digest.Digest{many[19_000], ds[0]} {
			if err := r.Load(context.Background(), []digest.Digest{d}); err != nil {
				t.Error(err)
			}
			if n := len(u.calls); n != i+1 || u.calls[i][0] != d {
				t.Errorf("%d calls, or it was not the first in its call", n)
				continue
			}
			if n := len(u.calls[i]); n != 1+maxExtra {
				t.Errorf("%d blobs rode along, want %d", n-1, maxExtra)
			}
		}
		if n := len(u.behind.storeSizes()); n != smallCalls {
			t.Errorf("%d calls of what nobody waits for went before", n-smallCalls)
		}
		cancel()
		if got, err := wait(); len(got) > 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%d blobs came because of a Prefetch that got none, %v", len(got), err)
		}
		synctest.Wait()
		if len(s.inFlight) > 0 || len(u.behind.ended) != smallCalls {
			t.Errorf("%d flights are left, %d calls were cancelled", len(s.inFlight), len(u.behind.ended))
		}
	})
}

// Calls for directories, small blobs and large blobs do not wait for each other. A caller that
// needs a queued blob does not wait for its queue.
func TestStoreQueuesDoNotWaitForOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		texts := []string{"directory"}
		for i := range largeCalls + 2 {
			texts = append(texts, strings.Repeat("x", cas.StreamAbove+1+i))
		}
		u, ds := storeNewPatient(texts...)
		r := s.Through(u)
		cancel, wait := storeBehind(r, append(storeManyDigests(20_000), ds...)...)
		if n := len(u.behind.storeSizes()); n != smallCalls+largeCalls {
			t.Errorf("%d calls, want %d", n, smallCalls+largeCalls)
		}
		// It waits as a file; as a directory it goes at once.
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := r.PrefetchDirectories(context.Background(), ds[:1]); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		calls := u.behind.calls
		if last := calls[len(calls)-1]; !slices.Equal(last, ds[:1]) {
			t.Errorf("the last call asks for %d blobs, not for the directory", len(last))
		}
		last := ds[len(ds)-1]
		if err := r.Load(context.Background(), []digest.Digest{last}); err != nil || len(u.calls) != 1 {
			t.Errorf("a large blob: %v after %d calls", err, len(u.calls))
		}
		cancel()
		_, _ = wait()
		close(u.behind.gate)
		<-done
		storeWantConsistent(t, s)
	})
}

func TestStoreReadThroughsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, ds := storeNewPatient("mine")
		cancel, wait := storeBehind(s.Through(u), storeManyDigests(40_000)...)
		_, waitMine := storeBehind(s.Through(u), ds...)
		u.behind.gate <- struct{}{}
		u.behind.gate <- struct{}{}
		synctest.Wait()
		n := len(u.behind.calls)
		if n != smallCalls+2 || !slices.ContainsFunc(u.behind.calls[smallCalls:], func(c []digest.Digest) bool {
			return slices.Equal(c, ds)
		}) {
			t.Errorf("it is in none of the next two of %d calls", n)
		}
		close(u.behind.gate)
		if got, err := waitMine(); err != nil || !slices.Equal(got, ds) {
			t.Errorf("%v, %v", got, err)
		}
		cancel()
		_, _ = wait()
	})
}

func TestStoreCancelledPrefetchLeavesWhatOthersWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, ds := storeNewPatient("asked for", "alone")
		r := s.Through(u)
		cancel, wait := storeBehind(r, ds...)
		var wg sync.WaitGroup
		wg.Go(func() {
			if b, err := r.ReadBlob(context.Background(), ds[0]); string(b) != "asked for" || err != nil {
				t.Errorf("read %q, %v", b, err)
			}
		})
		synctest.Wait()
		cancel()
		if _, err := wait(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if len(u.behind.ended) > 0 {
			t.Error("a call was cancelled that somebody waits for")
		}
		close(u.behind.gate)
		wg.Wait()
		if len(u.calls) > 0 {
			t.Error("it was asked for again")
		}
		storeWantConsistent(t, s)
	})
}

// Of two Prefetches of one blob the first returns it, and the other one if the first was cancelled.
func TestStorePrefetchReturnsWhatItBegan(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), storeOptions{})
			u, ds := storeNewPatient("twice", "once")
			r := s.Through(u)
			cancel, first := storeBehind(r, ds[0])
			_, second := storeBehind(r, ds...)
			if cancelled {
				cancel()
				synctest.Wait()
			}
			close(u.behind.gate)
			want, wantSecond := ds[:1], ds[1:]
			if cancelled {
				want, wantSecond = nil, ds
			}
			if got, _ := first(); !slices.Equal(got, want) {
				t.Errorf("cancelled %t: the first returns %v, want %v", cancelled, got, want)
			}
			got, err := second()
			if slices.Reverse(got); !slices.Equal(got, wantSecond) || err != nil {
				t.Errorf("cancelled %t: the second returns %v, want %v, %v", cancelled, got, wantSecond, err)
			}
		})
	}
}

// If the Prefetch that began a blob is cancelled, one of the others returns it, not all.
func TestStorePrefetchReturnsBlobOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, ds := storeNewPatient("blob")
		r := s.Through(u)
		cancel, first := storeBehind(r, ds...)
		_, second := storeBehind(r, ds...)
		_, third := storeBehind(r, ds...)
		cancel()
		synctest.Wait()
		close(u.behind.gate)
		var all []digest.Digest
		for _, wait := range []func() ([]digest.Digest, error){first, second, third} {
			got, _ := wait()
			all = append(all, got...)
		}
		if !slices.Equal(all, ds) {
			t.Errorf("one cancelled Prefetch and two others return %v, want %v", all, ds)
		}
	})
}

// A failure of Prefetch does not affect other callers that ask for the same blob.
func TestStoreFailedPrefetchFailsNobody(t *testing.T) {
	for what, fail := range map[string]func(*storeUpstream, []digest.Digest){
		"error":   func(u *storeUpstream, _ []digest.Digest) { u.err = errors.New("as the test wants") },
		"missing": func(u *storeUpstream, ds []digest.Digest) { delete(u.texts, ds[0]); delete(u.texts, ds[1]) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := storeOpen(t, t.TempDir(), storeOptions{})
				u, ds := storeNewPatient("a", "b")
				fail(u.behind, ds)
				r := s.Through(u)
				_, wait := storeBehind(r, ds...)
				var wg sync.WaitGroup
				wg.Go(func() {
					b, err := r.ReadBlob(context.Background(), ds[0])
					if string(b) != "a" || err != nil {
						t.Errorf("read %q, %v", b, err)
					}
				})
				synctest.Wait()
				close(u.behind.gate)
				wg.Wait()
				if got, err := wait(); len(got) > 0 || err == nil {
					t.Errorf("%d blobs came, %v", len(got), err)
				}
			})
		})
	}
}

// It does not affect readers of an arriving blob either.
func TestStoreFailedPrefetchIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := servertest.Bytes(7, storeArriving)
		front, d := storeNewRanges(data)
		behind, _ := storeNewRanges(data)
		r := storeOpen(t, t.TempDir(), storeOptions{}).Through(storePatientRanges{front, behind})
		_, wait := storeBehind(r, d)
		a := storeOpenArriving(t, r, d)
		defer a.Close()
		read := storeRead(front, a, 0, 10)
		synctest.Wait()
		(<-behind.calls).end(errors.New("as the test wants"))
		synctest.Wait()
		front.free()
		if err := <-read; err != nil {
			t.Error(err)
		}
		if got, err := wait(); err != nil || len(got) != 1 {
			t.Errorf("%d blobs came, %v", len(got), err)
		}
		if err := a.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// storeHalf delivers the first blob of a call and holds the second.
type storeHalf struct{ *storeUpstream }

func (h storeHalf) Fetch(ctx context.Context, ds []digest.Digest, sink func(digest.Digest, io.Reader) error) error {
	if err := sink(ds[0], strings.NewReader(h.texts[ds[0]])); err != nil {
		return err
	}
	return h.storeUpstream.Fetch(ctx, ds[1:], sink)
}

// A full store accepts the blobs that an action needs, whatever is being prefetched.
func TestStorePrefetchPinsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{MaxBytes: 8})
		u, ds := storeNewUpstream("aaaa", "bbbb")
		u.gate = make(chan struct{})
		_, wait := storeBehind(s.Through(storeHalf{u}), ds...)
		if !s.Contains(ds[0]) {
			t.Error("the first did not come")
		}
		storePut(t, s, "cccccccc")
		close(u.gate)
		if got, err := wait(); err != nil || len(got) != 2 {
			t.Errorf("%d came, %v", len(got), err)
		}
		storeWantConsistent(t, s)
	})
}

func TestStoreCloseEndsPrefetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, _ := storeNewPatient()
		r := s.Through(u)
		_, wait := storeBehind(r, storeManyDigests(20_000)...)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got, err := wait(); err == nil || len(got) > 0 {
			t.Errorf("%d came, %v", len(got), err)
		}
		if _, err := r.Prefetch(context.Background(), storeManyDigests(1)); err == nil {
			t.Error("prefetched into a closed store")
		}
	})
}

// A large blob that is being prefetched can be read while it arrives, even by a later caller. The
// caller's requests have the priority of waiting callers.
func TestStorePrefetchedArrivalIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := servertest.Bytes(7, storeArriving)
		front, d := storeNewRanges(data)
		behind, _ := storeNewRanges(data)
		r := storeOpen(t, t.TempDir(), storeOptions{}).Through(storePatientRanges{front, behind})
		_, wait := storeBehind(r, d)
		if len(behind.calls) != 1 {
			t.Fatalf("%d streams behind, want one", len(behind.calls))
		}
		a := storeOpenArriving(t, r, d)
		defer a.Close()
		read := storeRead(front, a, storeArriving-10, 10)
		synctest.Wait()
		// All of it, too: nothing has come of the one behind.
		partCalls(t, front, all, span.Span{From: storeArriving - 10, To: storeArriving})
		front.free()
		if err := <-read; err != nil {
			t.Error(err)
		}
		behind.free()
		if got, err := wait(); err != nil || !slices.Equal(got, []digest.Digest{d}) {
			t.Errorf("%v, %v", got, err)
		}
		if err := a.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

type storePatientRanges struct {
	*storeRanges
	behind *storeRanges
}

func (p storePatientRanges) Behind() cas.Fetcher { return p.behind }

func TestStorePrefetchesUnderManyHands(t *testing.T) {
	texts := storeManyTexts(100)
	texts = append(texts, strings.Repeat("x", cas.StreamAbove+1), strings.Repeat("y", cas.StreamAbove+2))
	u, ds := storeNewUpstream(texts...)
	s := storeOpen(t, t.TempDir(), storeOptions{MaxBytes: cas.StreamAbove + 500})
	var wg sync.WaitGroup
	for hand := range 8 {
		r := s.Through(u)
		wg.Go(func() {
			for i := range 100 {
				from := (i*7 + hand*13) % len(ds)
				ctx, cancel := context.WithCancel(context.Background())
				if i%3 == 0 {
					go cancel()
				}
				switch {
				case hand%2 == 0 && i%5 == 0:
					_, _ = r.PrefetchDirectories(ctx, ds[from:])
				case hand%2 == 0:
					_, _ = r.Prefetch(ctx, ds[from:])
				default:
					b, err := r.ReadBlob(ctx, ds[from])
					if err == nil && string(b) != texts[from] ||
						err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, cas.ErrNoSpace) {
						t.Errorf("read %.10q, %v", b, err)
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	s.running.Wait()
	if s.Stats().PinnedBytes != 0 || len(s.inFlight) > 0 {
		t.Errorf("%d bytes are pinned, %d flights are left", s.Stats().PinnedBytes, len(s.inFlight))
	}
	for k, l := range s.queues {
		if l.calls != 0 || len(l.turns) > 0 {
			t.Errorf("queue %d: %d calls, %d turns", k, l.calls, len(l.turns))
		}
	}
	storeWantConsistent(t, s)
}

// Low-priority calls always leave a free call for others.
func TestClientKeepsCallsFromThoseBehind(t *testing.T) {
	held := make(chan struct{})
	arrived := make(chan struct{}, 10)
	f := servertest.Start(t, servertest.Config{Unary: func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
		if m, ok := r.(*repb.BatchReadBlobsRequest); ok && m.GetInstanceName() == "behind" {
			arrived <- struct{}{}
			<-held
		}
		return call(ctx, r)
	}})
	ds := []digest.Digest{}
	for _, text := range storeManyTexts(6) {
		ds = append(ds, f.Put(t, digest.SHA256, []byte(text)))
	}
	large := f.Put(t, digest.SHA256, servertest.Bytes(1, cas.StreamAbove+1))
	c := clientOf(f, client.Options{MaxConcurrent: 4})
	behind := c.WithInstance("behind", digest.SHA256).Behind()
	var wg sync.WaitGroup
	for _, d := range append(ds, large) {
		wg.Go(func() {
			var sink servertest.Sink
			if err := behind.Fetch(t.Context(), []digest.Digest{d}, sink.Take); err != nil || len(sink.Got) != 1 {
				t.Errorf("%d blobs, %v", len(sink.Got), err)
			}
		})
	}
	<-arrived
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, d := range append(ds, large) {
		if _, err := c.Read(ctx, d); err != nil {
			t.Error(err)
		}
	}
	if n := len(arrived); n > 1 {
		t.Errorf("%d calls stand behind at the same time, want 2", n+1)
	}
	close(held)
	wg.Wait()
}
