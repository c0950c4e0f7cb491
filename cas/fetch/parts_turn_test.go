package fetch

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// fewRanges runs as many calls at a time as there are tokens. Other calls wait.
type fewRanges struct {
	*storeRanges
	tokens chan struct{}
}

func (u fewRanges) FetchRange(ctx context.Context, d digest.Digest, part span.Span, w io.Writer) error {
	select {
	case u.tokens <- struct{}{}:
		defer func() { <-u.tokens }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return u.storeRanges.FetchRange(ctx, d, part, w)
}

// A patientFew makes its low-priority calls through another upstream, which has few tokens.
type patientFew struct {
	*storeRanges
	behind fewRanges
}

func (p patientFew) Behind() cas.Fetcher { return p.behind }

// newPatientFew returns an upstream of one blob, of whose calls one at a time stands behind.
func newPatientFew(seed uint64, tokens chan struct{}) (patientFew, digest.Digest) {
	front, d := storeNewRanges(servertest.Bytes(seed, storeArriving))
	behind, _ := storeNewRanges(front.data)
	return patientFew{front, fewRanges{behind, tokens}}, d
}

var all = span.Span{From: 0, To: storeArriving}

// Predicted parts whose call is waiting or silent delay no caller, whether it reads them or waits
// for the whole blob.
func TestPartsDelayNobody(t *testing.T) {
	for _, called := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tokens := make(chan struct{}, 1)
			if !called {
				tokens <- struct{}{}
			}
			s := storeOpen(t, t.TempDir(), storeOptions{})
			parts := partsAt(3, 3<<20, 64<<10)
			u, d := newPatientFew(7, tokens)
			r := s.Through(u)
			defer r.PrefetchRanges(t.Context(), d, parts)()
			synctest.Wait()
			_, wait := storeBehind(r, d)
			if n := len(u.behind.calls); (n == 1) != called {
				t.Errorf("%d calls stand behind", n)
			}
			a := storeOpenArriving(t, r, d)
			partCalls(t, u.storeRanges, all)
			read := storeRead(u.storeRanges, a, parts[1].From+100, 100)
			call := partCalls(t, u.storeRanges, span.Span{From: parts[1].From + 100, To: parts[1].To})
			if err := call[0].next(100); err != nil {
				t.Error(err)
			}
			storeWant(t, read)
			u.free()
			storeWantWhole(t, s, u.storeRanges, a)
			_, _ = wait()
		})
	}
}

// A hint that was overtaken gives up its place, and its call.
func TestPartsThatAreOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, d := newPatientFew(7, make(chan struct{}, maxHints))
		s := storeOpen(t, t.TempDir(), storeOptions{})
		parts := partsAt(2, 3<<20, 64<<10)
		defer s.Through(u).PrefetchRanges(t.Context(), d, parts)()
		hints := partCalls(t, u.behind.storeRanges, parts...)
		a := storeOpenArriving(t, s.Through(u), d)
		partCalls(t, u.storeRanges, all)
		read := storeRead(u.storeRanges, a, parts[0].From, 100)
		if err := partCalls(t, u.storeRanges, parts[0])[0].next(64 << 10); err != nil {
			t.Error(err)
		}
		storeWant(t, read)
		synctest.Wait()
		select {
		case <-hints[0].over:
		default:
			t.Error("the call for what has come goes on")
		}
		if n := len(s.hints); n != 1 {
			t.Errorf("%d hints have a place, want one", n)
		}
		u.free()
		storeWantWhole(t, s, u.storeRanges, a)
	})
}

// All files of a store together have few calls for parts.
func TestPartsOfManyFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		parts := partsAt(maxHints, 1<<20, 64<<10)
		var files []*storeRanges
		for seed := range uint64(3) {
			u, d := storeNewRanges(servertest.Bytes(seed, storeArriving))
			defer s.Through(u).PrefetchRanges(t.Context(), d, parts)()
			files = append(files, u)
			synctest.Wait()
		}
		for ended := range 3 * maxHints {
			synctest.Wait()
			calls, next := 0, (*storeRanges)(nil)
			for _, u := range files {
				calls += len(u.calls)
				if len(u.calls) > 0 && next == nil {
					next = u
				}
			}
			if want := min(maxHints, 3*maxHints-ended); calls != want {
				t.Fatalf("%d calls after %d, want %d", calls, ended, want)
			}
			call := <-next.calls
			if err := call.next(64 << 10); err != nil {
				t.Error(err)
			}
			call.end(nil)
		}
	})
}

// Fetches for the result of an action have high priority, and hints low priority, whatever the
// order of requests.
func TestPartsBeforeAndAfterTheRest(t *testing.T) {
	for _, opens := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			u, d := newPatientFew(7, make(chan struct{}, 100))
			s := storeOpen(t, t.TempDir(), storeOptions{})
			r := s.Through(u)
			parts := partsAt(2, 3<<20, 64<<10)
			var a *Arrival
			wait := func() ([]digest.Digest, error) { return nil, nil }
			for step := 1; step <= 3; step++ {
				switch {
				case step == opens:
					a = storeOpenArriving(t, r, d)
				case step == 1 || step == 2 && opens == 1:
					defer r.PrefetchRanges(t.Context(), d, parts)()
				default:
					_, wait = storeBehind(r, d)
				}
				synctest.Wait()
			}
			partCalls(t, u.behind.storeRanges, parts...)
			partCalls(t, u.storeRanges, all)
			u.free()
			storeWantWhole(t, s, u.storeRanges, a)
			_, _ = wait()
		})
	}
}

// busy has all turns of large prefetched blobs taken. The function it returns gives one back, or
// all in the end.
func busy(t *testing.T, s *testStore) (give func(), end func()) {
	t.Helper()
	var others []*storeRanges
	var waits []func()
	for seed := range uint64(largeCalls) {
		u, d := storeNewRanges(servertest.Bytes(100+seed, storeArriving))
		others = append(others, u)
		_, wait := storeBehind(s.Through(u), d)
		waits = append(waits, func() { _, _ = wait() })
	}
	give = func() {
		others[0].free()
		others = others[1:]
		synctest.Wait()
	}
	return give, func() {
		for len(others) > 0 {
			give()
		}
		for _, wait := range waits {
			wait()
		}
	}
}

// The parts of a queued blob are fetched at once for each caller that predicted some. The rest is
// fetched in its turn, and only if the caller that asked for it still waits.
func TestPartsOfWhatWaits(t *testing.T) {
	for _, partsFirst := range []bool{true, false} {
		for _, leaves := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := storeOpen(t, t.TempDir(), storeOptions{})
				give, end := busy(t, s)
				defer end()
				u, d := storeNewRanges(servertest.Bytes(99, storeArriving))
				r := s.Through(u)
				parts := partsAt(3, 3<<20, 64<<10)
				var cancel func()
				var wait func() ([]digest.Digest, error)
				if !partsFirst {
					cancel, wait = storeBehind(r, d)
				}
				defer r.PrefetchRanges(t.Context(), d, parts[:1])()
				defer s.Through(u).PrefetchRanges(t.Context(), d, parts[1:])()
				for _, part := range partCalls(t, u, parts...) {
					if err := part.next(64 << 10); err != nil {
						t.Error(err)
					}
					part.end(nil)
				}
				if partsFirst {
					cancel, wait = storeBehind(r, d)
				}
				partCalls(t, u)
				if leaves {
					cancel()
					_, _ = wait()
				}
				give()
				if leaves {
					partCalls(t, u)
					cancel, wait = storeBehind(r, d)
				}
				partCalls(t, u, all)
				u.free()
				if got, err := wait(); err != nil || !slices.Equal(got, []digest.Digest{d}) {
					t.Errorf("%v came, %v", got, err)
				}
				cancel()
			})
		}
	}
}

// toldRanges tell when a call has begun.
type toldRanges struct{ fewRanges }

func (u toldRanges) FetchRange(ctx context.Context, d digest.Digest, part span.Span, w io.Writer) error {
	if _, err := w.Write(nil); err != nil {
		return err
	}
	return u.fewRanges.FetchRange(ctx, d, part, w)
}

// A patientTold makes its low-priority calls through another upstream, which tells when they begin.
type patientTold struct {
	*storeRanges
	behind toldRanges
}

func (p patientTold) Behind() cas.Fetcher { return p.behind }

// A prefetch whose call has begun serves those who come to wait for its bytes: another call would
// bring all of them once more, and later.
func TestCallsThatHaveBegunServeAll(t *testing.T) {
	for _, told := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), storeOptions{})
			few, d := newPatientFew(7, make(chan struct{}, 1))
			var u cas.Fetcher = few
			if told {
				u = patientTold{few.storeRanges, toldRanges{few.behind}}
			}
			r := s.Through(u)
			_, wait := storeBehind(r, d)
			call := partCalls(t, few.behind.storeRanges, all)
			a := storeOpenArriving(t, r, d)
			read := storeRead(few.storeRanges, a, 1000, 100)
			if told {
				partCalls(t, few.storeRanges)
				if err := call[0].next(2000); err != nil {
					t.Error(err)
				}
				storeWant(t, read)
				few.behind.free()
			} else {
				partCalls(t, few.storeRanges, all)
				few.free()
				storeWant(t, read)
			}
			storeWantWhole(t, s, few.storeRanges, a)
			_, _ = wait()
		})
	}
}

// A call that begins when it is no longer needed ends before it asks for anything.
func TestCallsThatBeginTooLate(t *testing.T) {
	a := &arrival{digest: digest.Of(digest.SHA256, nil)}
	s := &stream{a: a, state: overtaken}
	if _, err := s.Write(nil); err != errEnough {
		t.Errorf("%v, want %v", err, errEnough)
	}
}

// A prefetch whose call has begun does not stand still for others once a caller reads some of its
// bytes, however few: it would get them by one more call.
func TestCallsThatHaveBegunGoOnForReaders(t *testing.T) {
	for _, reads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), storeOptions{})
			few, d := newPatientFew(7, make(chan struct{}, 1))
			few.gate = make(chan struct{})
			r := s.Through(patientTold{few.storeRanges, toldRanges{few.behind}})
			r.Yield(true)
			_, wait := storeBehind(r, d)
			call := partCalls(t, few.behind.storeRanges, all)
			missed := make(chan error, 1)
			go func() {
				_, err := r.ReadBlob(t.Context(), digest.Of(digest.SHA256, []byte("missed")))
				missed <- err
			}()
			synctest.Wait()
			var read <-chan error
			if reads {
				read = storeRead(few.storeRanges, storeOpenArriving(t, r, d), 3000, 100)
				synctest.Wait()
			}
			if err := call[0].next(2000); (err == nil) != reads {
				t.Errorf("reads %t: %v", reads, err)
			}
			if reads {
				if err := call[0].next(2000); err != nil {
					t.Error(err)
				}
				storeWant(t, read)
				partCalls(t, few.storeRanges)
			}
			close(few.gate)
			if err := <-missed; !errors.Is(err, cas.ErrNotFound) {
				t.Error(err)
			}
			few.free()
			few.behind.free()
			if _, err := wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestYieldsTooLate: a caller may come between the question whether a prefetch stands still, and
// its end for that.
func TestYieldsTooLate(t *testing.T) {
	data := servertest.Bytes(1, 2000)
	s := storeOpen(t, t.TempDir(), storeOptions{})
	d := digest.Of(digest.SHA256, data)
	for _, comes := range []bool{false, true} {
		a := &arrival{digest: d, in: s.Receive(d), whole: true}
		a.stop = func() stop {
			if comes {
				a.complete(true)
			}
			return stop{changed: make(chan struct{})}
		}
		all := span.Span{To: d.SizeBytes()}
		if _, err := a.openForLocked(forRest, all, all.To).Write(data[:1000]); (err == nil) != comes {
			t.Errorf("a caller comes %t: %v", comes, err)
		}
		a.drop(errors.New("dropped"))
		a.close()
	}
}
