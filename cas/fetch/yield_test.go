package fetch

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// A pieceReader reads a blob, a piece for each token.
type pieceReader struct {
	from   io.Reader
	pieces chan struct{}
	pauses int
}

func (r *pieceReader) Pause() { r.pauses++ }

func (r *pieceReader) Read(p []byte) (int, error) {
	<-r.pieces
	return r.from.Read(p[:min(len(p), 64<<10)])
}

// A pieceUpstream delivers large blobs by a pieceReader.
type pieceUpstream struct {
	*storeUpstream
	large *pieceReader
}

func (u pieceUpstream) Fetch(ctx context.Context, ds []digest.Digest, sink func(digest.Digest, io.Reader) error) error {
	return u.storeUpstream.Fetch(ctx, ds, func(d digest.Digest, r io.Reader) error {
		if !gathered(d) {
			u.large.from = r
			r = u.large
		}
		return sink(d, r)
	})
}

// A yieldTest is a Prefetch of a large blob, of which a piece has come. Other calls of the upstream
// wait for tokens of its gate.
type yieldTest struct {
	*testing.T
	u      pieceUpstream
	r      *ReadThrough
	ds     []digest.Digest
	cancel func()
	wait   func() ([]digest.Digest, error)
}

func newYieldTest(t *testing.T) *yieldTest {
	up, ds := storeNewUpstream(string(servertest.Bytes(1, 3<<20)), "missed", "prefetched")
	y := &yieldTest{T: t, u: pieceUpstream{up, &pieceReader{pieces: make(chan struct{})}}, ds: ds}
	y.r = storeOpen(t, t.TempDir(), storeOptions{}).Through(y.u)
	y.cancel, y.wait = storeBehind(y.r, ds[0])
	up.gate = make(chan struct{})
	y.want(true, "at first")
	return y
}

// want reports whether the next piece is read, after the one that is being read now.
func (y *yieldTest) want(goes bool, when string) {
	y.Helper()
	for i := range 2 {
		synctest.Wait()
		select {
		case y.u.large.pieces <- struct{}{}:
			if i > 0 && !goes {
				y.Errorf("%s: the blob does not stand still", when)
			}
		default:
			if goes {
				y.Errorf("%s: the blob stands still", when)
			}
		}
	}
}

// open has a caller wait for d, for a second.
func (y *yieldTest) open(d digest.Digest) (end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := y.r.ReadBlob(y.Context(), d); err != nil {
			y.Error(err)
		}
	}()
	time.Sleep(time.Second)
	return func() {
		y.u.gate <- struct{}{}
		<-done
	}
}

// finish has all that is left come.
func (y *yieldTest) finish() {
	y.Helper()
	close(y.u.large.pieces)
	if got, err := y.wait(); len(got) != 1 || err != nil {
		y.Errorf("%v came, %v", got, err)
	}
	if b, err := y.r.ReadBlob(y.Context(), y.ds[0]); err != nil || !bytes.Equal(b, servertest.Bytes(1, 3<<20)) {
		y.Errorf("%d bytes, %v", len(b), err)
	}
}

// A large blob that is prefetched stands still while a caller waits for a blob that is not, and as
// long again.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYieldTest(t)
		end := y.open(y.ds[1])
		y.want(true, "before Yield")
		y.r.Yield(true)
		y.want(false, "while a caller waits")
		if y.u.large.pauses != 1 {
			t.Errorf("%d pauses", y.u.large.pauses)
		}
		end()
		time.Sleep(900 * time.Millisecond)
		y.want(false, "before as long again")
		time.Sleep(200 * time.Millisecond)
		y.want(true, "after as long again")
		y.finish()
	})
}

// It goes on at once if somebody needs it, or the profile is right.
func TestYieldEnds(t *testing.T) {
	for name, act := range map[string]func(y *yieldTest){
		"Yield": func(y *yieldTest) { y.r.Yield(false) },
		"a caller": func(y *yieldTest) {
			go func() { _, _ = y.r.ReadBlob(y.Context(), y.ds[0]) }()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			y := newYieldTest(t)
			y.r.Yield(true)
			end := y.open(y.ds[1])
			y.want(false, "while a caller waits")
			act(y)
			y.want(true, "after "+name)
			end()
			y.finish()
		})
	}
}

// Nothing stands still for a caller that waits for what is prefetched.
func TestYieldToNoPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYieldTest(t)
		y.r.Yield(true)
		_, wait := storeBehind(y.r, y.ds[2])
		end := y.open(y.ds[2])
		y.want(true, "while a caller waits")
		end()
		if _, err := wait(); err != nil {
			t.Error(err)
		}
		y.finish()
	})
}

// A prefetch that stands still ends with its last caller.
func TestYieldCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYieldTest(t)
		y.r.Yield(true)
		end := y.open(y.ds[1])
		y.want(false, "while a caller waits")
		y.cancel()
		if _, err := y.wait(); err == nil {
			t.Error("no error")
		}
		end()
	})
}

// The call for a blob that could be read while it arrives ends, and the next one continues where
// it was.
func TestYieldOfArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front, d := storeNewRanges(servertest.Bytes(7, storeArriving))
		behind, _ := storeNewRanges(front.data)
		missed := digest.Of(digest.SHA256, []byte("missed"))
		front.texts[missed], front.gate = "missed", make(chan struct{})
		s := storeOpen(t, t.TempDir(), storeOptions{})
		r := s.Through(storePatientRanges{front, behind})
		_, wait := storeBehind(r, d)
		call := partCalls(t, behind, all)[0]
		if err := call.next(1 << 20); err != nil {
			t.Error(err)
		}
		r.Yield(true)
		read := make(chan error, 1)
		go func() {
			_, err := r.ReadBlob(t.Context(), missed)
			read <- err
		}()
		time.Sleep(time.Second)
		if err := call.next(100); err == nil {
			t.Error("the call goes on")
		}
		synctest.Wait()
		if n := len(behind.calls); n > 0 {
			t.Errorf("%d more calls while a caller waits", n)
		}
		front.gate <- struct{}{}
		if err := <-read; err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		partCalls(t, behind, span.Span{From: 1 << 20, To: storeArriving})
		behind.free()
		if got, err := wait(); len(got) != 1 || err != nil {
			t.Errorf("%v came, %v", got, err)
		}
	})
}

// TestClaimedWhileItStandsStill: a blob of which nothing had come when a caller asked for it was
// absent to that caller, so Prefetch does not return it as well.
func TestClaimedWhileItStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front, d := storeNewRanges(servertest.Bytes(7, storeArriving))
		behind, _ := storeNewRanges(front.data)
		missed := digest.Of(digest.SHA256, []byte("missed"))
		front.texts[missed], front.gate = "missed", make(chan struct{})
		r := storeOpen(t, t.TempDir(), storeOptions{}).Through(storePatientRanges{front, behind})
		r.Yield(true)
		read := make(chan error, 1)
		go func() {
			_, err := r.ReadBlob(t.Context(), missed)
			read <- err
		}()
		synctest.Wait()
		_, wait := storeBehind(r, d)
		synctest.Wait()
		_, arrival, was, err := r.OpenArriving(t.Context(), d)
		if err != nil || was != cas.Absent {
			t.Fatalf("it was at %v, %v", was, err)
		}
		defer arrival.Close()
		front.free()
		behind.free()
		front.gate <- struct{}{}
		if err := <-read; err != nil {
			t.Error(err)
		}
		if err := arrival.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if got, err := wait(); len(got) != 0 || err != nil {
			t.Errorf("%v was prefetched, %v", got, err)
		}
	})
}
