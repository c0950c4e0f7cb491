package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// storeUpstream is a Fetcher that holds texts. Fetch waits for gate, if there is
// one, or for its context; then it fails with err, if there is one.
type storeUpstream struct {
	gate chan struct{}
	err  error

	mu    sync.Mutex
	texts map[digest.Digest]string
	calls [][]digest.Digest
	ended []error // the cause of each cancelled call
}

func storeNewUpstream(texts ...string) (*storeUpstream, []digest.Digest) {
	u := &storeUpstream{texts: make(map[digest.Digest]string)}
	ds := make([]digest.Digest, 0, len(texts))
	for _, text := range texts {
		d := digest.Of(digest.SHA256, []byte(text))
		u.texts[d] = text
		ds = append(ds, d)
	}
	return u, ds
}

func (u *storeUpstream) Fetch(ctx context.Context, ds []digest.Digest, sink func(digest.Digest, io.Reader) error) error {
	u.mu.Lock()
	u.calls = append(u.calls, ds)
	u.mu.Unlock()
	if u.gate != nil {
		select {
		case <-u.gate:
		case <-ctx.Done():
			u.mu.Lock()
			defer u.mu.Unlock()
			u.ended = append(u.ended, ctx.Err())
			return ctx.Err()
		}
	}
	if u.err != nil {
		return u.err
	}
	var missing cas.MissingError
	var first error
	for _, d := range ds {
		u.mu.Lock()
		text, ok := u.texts[d]
		u.mu.Unlock()
		if !ok {
			missing.Digests = append(missing.Digests, d)
		} else if err := sink(d, strings.NewReader(text)); err != nil && first == nil {
			first = err
		}
	}
	if first == nil && len(missing.Digests) > 0 {
		return &missing
	}
	return first
}

// storeSizes returns how many digests each call asked for.
func (u *storeUpstream) storeSizes() []int {
	u.mu.Lock()
	defer u.mu.Unlock()
	sizes := []int{}
	for _, c := range u.calls {
		sizes = append(sizes, len(c))
	}
	return sizes
}

func TestStoreLoadBatchesWhatNobodyFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, ds := storeNewUpstream("a", "b", "c", "d", "e")
		u.gate = make(chan struct{})
		r := s.Through(u)
		storePut(t, s, "a")
		var wg sync.WaitGroup
		load := func(ds ...digest.Digest) {
			wg.Go(func() {
				if err := r.Load(ctx, ds); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		load(ds[0])
		load(ds[0], ds[1], ds[2], ds[2])
		load(ds...)
		load(slices.Concat(ds, ds)...)
		close(u.gate)
		wg.Wait()
		if got := u.storeSizes(); !slices.Equal(got, []int{2, 2}) {
			t.Errorf("calls of sizes %v, want one for b and c, one for d and e", got)
		}
		if blobs, bytes := r.Fetched(); blobs != 4 || bytes != 4 {
			t.Errorf("fetched %d blobs, %d bytes", blobs, bytes)
		}
		storeWantConsistent(t, s)
	})
}

func TestStoreFetchesOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, ds := storeNewUpstream("text")
		u.gate = make(chan struct{})
		var wg sync.WaitGroup
		for i := range 50 {
			r := s.Through(u)
			wg.Go(func() {
				var got []byte
				var err error
				if i%2 == 0 {
					got, err = r.ReadBlob(context.Background(), ds[0])
				} else if file, openErr := r.OpenBlob(context.Background(), ds[0]); openErr == nil {
					got, err = io.ReadAll(file)
					_ = file.Close()
				} else {
					err = openErr
				}
				if string(got) != "text" || err != nil {
					t.Errorf("read %q, %v", got, err)
				}
			})
		}
		synctest.Wait()
		close(u.gate)
		wg.Wait()
		if got := u.storeSizes(); len(got) != 1 {
			t.Errorf("%d fetches", len(got))
		}
		storeWantConsistent(t, s)
	})
}

func TestStoreFetchEndsWithItsLastAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, ds := storeNewUpstream("a", "b")
		u.gate = make(chan struct{})
		r := s.Through(u)
		errs := make(chan error)
		ask := func(ds ...digest.Digest) context.CancelFunc {
			ctx, cancel := context.WithCancel(context.Background())
			go func() { errs <- r.Load(ctx, ds) }()
			synctest.Wait()
			return cancel
		}
		leave := func(cancel context.CancelFunc) {
			cancel()
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Errorf("who left got %v", err)
			}
			synctest.Wait()
		}
		starter, second, third := ask(ds...), ask(ds[0]), ask(ds[1])
		leave(starter)
		leave(third)
		// No caller waits for b now, but the batch continues, and another caller can join b.
		fourth := ask(ds[1])
		leave(second)
		if len(u.ended) > 0 {
			t.Fatal("a fetch was cancelled while somebody waited")
		}
		leave(fourth)
		if len(u.ended) != 1 {
			t.Fatal("the fetch goes on for nobody")
		}
		defer ask(ds...)()
		if got := u.storeSizes(); !slices.Equal(got, []int{2, 2}) {
			t.Errorf("calls of sizes %v, want a second one for the asker after the cancellation", got)
		}
		close(u.gate)
		if err := <-errs; err != nil {
			t.Error(err)
		}
		storeWantConsistent(t, s)
	})
}

func TestStoreFailedFetchIsNotRemembered(t *testing.T) {
	ctx := context.Background()
	s := storeOpen(t, t.TempDir(), storeOptions{MaxBytes: 100})
	u, ds := storeNewUpstream("a", "b", "c")
	r := s.Through(u)
	unavailable := errors.New("upstream is away")

	u.err = unavailable
	if _, err := r.ReadBlob(ctx, ds[0]); !errors.Is(err, unavailable) {
		t.Errorf("failure: %v", err)
	}
	u.err = nil
	u.texts[ds[0]] = "tampered"
	if _, err := r.OpenBlob(ctx, ds[0]); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("corrupt: %v", err)
	}
	delete(u.texts, ds[0])
	delete(u.texts, ds[2])
	err := r.Load(ctx, ds)
	var missing *cas.MissingError
	if !errors.As(err, &missing) || !errors.Is(err, cas.ErrNotFound) || len(missing.Digests) != 2 ||
		!slices.Contains(missing.Digests, ds[0]) || !slices.Contains(missing.Digests, ds[2]) {
		t.Errorf("missing: %v", err)
	}
	if storeText(s, ds[1]) != "b" {
		t.Error("what is there was not delivered")
	}
	u.texts[ds[0]], u.texts[ds[2]] = "a", "c"
	if err := r.Load(ctx, ds); err != nil {
		t.Errorf("at last: %v", err)
	}
	storeWantConsistent(t, s)
}

func TestStoreFetcherThatKeepsSilentMissesTheBlob(t *testing.T) {
	s := storeOpen(t, t.TempDir(), storeOptions{})
	_, ds := storeNewUpstream("a")
	silent := storeFetchFunc(func(sink func(digest.Digest, io.Reader) error) error {
		if err := sink(digest.BLAKE3.Empty(), strings.NewReader("")); err == nil {
			t.Error("a blob nobody asked for was taken")
		}
		return nil
	})
	if err := s.Through(silent).Load(context.Background(), ds); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("error %v", err)
	}
}

func TestStoreDoesNotFetchWhatHasArrived(t *testing.T) {
	s := storeOpen(t, t.TempDir(), storeOptions{})
	u, ds := storeNewUpstream("a")
	r := s.Through(u)
	// The blob arrives after the caller has looked and before it asks.
	storePut(t, s, "a")
	asked, err := r.ask(context.Background(), ds)
	if err != nil || len(asked.flights) > 0 || !slices.Equal(asked.present, ds) {
		t.Errorf("%d flights, present %v, %v", len(asked.flights), asked.present, err)
	}
	s.running.Wait()
	if len(u.calls) > 0 {
		t.Error("fetched")
	}
}

type storeFetchFunc func(sink func(digest.Digest, io.Reader) error) error

func (f storeFetchFunc) Fetch(_ context.Context, _ []digest.Digest, sink func(digest.Digest, io.Reader) error) error {
	return f(sink)
}

func TestStoreTriesItsOwnUpstreamWhenAnotherFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := storeOpen(t, t.TempDir(), storeOptions{})
		bad, _ := storeNewUpstream()
		bad.gate = make(chan struct{})
		good, ds := storeNewUpstream("a")
		theirs, ours := s.Through(bad), s.Through(good)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := theirs.Load(ctx, ds); !errors.Is(err, cas.ErrNotFound) {
				t.Errorf("theirs: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := ours.Load(ctx, ds); err != nil {
				t.Errorf("ours: %v", err)
			}
		})
		synctest.Wait()
		close(bad.gate)
		wg.Wait()
		if blobs, _ := theirs.Fetched(); blobs != 0 {
			t.Errorf("theirs fetched %d", blobs)
		}
		if blobs, _ := ours.Fetched(); blobs != 1 {
			t.Errorf("ours fetched %d", blobs)
		}
	})
}

func TestStoreCloseEndsFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		u, ds := storeNewUpstream("a")
		u.gate = make(chan struct{})
		r := s.Through(u)
		failed := make(chan error, 1)
		go func() { failed <- r.Load(context.Background(), ds) }()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if len(u.ended) != 1 {
			t.Error("Close returned before the fetch")
		}
		if err := <-failed; !errors.Is(err, fs.ErrClosed) {
			t.Errorf("who waited got %v", err)
		}
		if err := r.Load(context.Background(), ds); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("who came later got %v", err)
		}
	})
}

func TestStoreLoadMakesAllLocalOrFails(t *testing.T) {
	ctx := context.Background()
	s := storeOpen(t, t.TempDir(), storeOptions{MaxBytes: 8})
	u, ds := storeNewUpstream("aaaa", "bbbb", "cccc")
	r := s.Through(u)
	if err := r.Load(ctx, ds[:2]); err != nil || !s.Contains(ds[0]) || !s.Contains(ds[1]) {
		t.Errorf("what fits: %v", err)
	}
	if err := r.Load(ctx, ds); !errors.Is(err, cas.ErrNoSpace) {
		t.Errorf("what does not: %v", err)
	}
	if err := r.Load(ctx, ds[1:]); err != nil {
		t.Errorf("what fits, again: %v", err)
	}
	u.calls = nil
	s = storeOpen(t, t.TempDir(), storeOptions{MaxBytes: 8})
	if err := s.Through(u).Load(ctx, ds); !errors.Is(err, cas.ErrNoSpace) || len(u.calls) != 1 {
		t.Errorf("what does not, at once: %v after %d fetches", err, len(u.calls))
	}
	storeWantConsistent(t, s)
}

func TestStoreReadsThroughUnderManyHands(t *testing.T) {
	texts := make([]string, 100)
	for i := range texts {
		texts[i] = fmt.Sprintf("text %02d", i)
	}
	u, ds := storeNewUpstream(texts...)
	s := storeOpen(t, t.TempDir(), storeOptions{MaxBytes: 50 * 7})
	var wg sync.WaitGroup
	for hand := range 8 {
		r := s.Through(u)
		wg.Go(func() {
			for i := range 200 {
				d := ds[(i*(hand+1)+hand)%len(ds)]
				ctx, cancel := context.WithCancel(context.Background())
				if i%7 == 0 {
					go cancel()
				}
				b, err := r.ReadBlob(ctx, d)
				if err == nil && string(b) != u.texts[d] || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("read %q, %v", b, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	s.running.Wait()
	storeWantConsistent(t, s)
}
