package fetch

import (
	"bytes"
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
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// storeRanges is an upstream whose FetchRange does what the test says, call by
// call, until it says free.
type storeRanges struct {
	*storeUpstream
	data  []byte
	calls chan *storeCall
	freed chan struct{}
}

// storeCall is one call of FetchRange.
type storeCall struct {
	offset, at int64
	data       []byte
	w          io.Writer
	steps      chan func() (ended bool, err error)
	over       chan struct{} // closed when the call has ended
}

func storeNewRanges(data []byte) (*storeRanges, digest.Digest) {
	u, ds := storeNewUpstream(string(data))
	return &storeRanges{u, data, make(chan *storeCall, 1000), make(chan struct{})}, ds[0]
}

func (u *storeRanges) FetchRange(ctx context.Context, _ digest.Digest, part span.Span, w io.Writer) error {
	c := &storeCall{
		offset: part.From, at: part.From, data: u.data[:part.To], w: w,
		steps: make(chan func() (bool, error)), over: make(chan struct{}),
	}
	defer close(c.over)
	u.calls <- c
	for {
		select {
		case step := <-c.steps:
			if ended, err := step(); ended {
				return err
			}
		case <-u.freed:
			_, err := w.Write(c.data[c.at:])
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// free lets all calls deliver what is left, from now on.
func (u *storeRanges) free() { close(u.freed) }

// send delivers bytes and returns what the Store says to them; an error ends the call.
func (c *storeCall) send(p []byte) error {
	said := make(chan error, 1)
	c.steps <- func() (bool, error) {
		n, err := c.w.Write(p)
		c.at += int64(n)
		said <- err
		return err != nil, err
	}
	return <-said
}

// next delivers the n bytes that follow.
func (c *storeCall) next(n int64) error { return c.send(c.data[c.at:][:n]) }

// end ends the call with err, unless it has ended: a receiver with all bytes no longer waits for
// the call.
func (c *storeCall) end(err error) {
	select {
	case c.steps <- func() (bool, error) { return true, err }:
	case <-c.over:
	}
}

const storeArriving = 16 << 20

// storeArrive has an upstream, and an Arrival of its one blob.
func storeArrive(t *testing.T) (*testStore, *storeRanges, *Arrival) {
	t.Helper()
	u, d := storeNewRanges(servertest.Bytes(7, storeArriving))
	s := storeOpen(t, t.TempDir(), storeOptions{})
	return s, u, storeOpenArriving(t, s.Through(u), d)
}

func storeOpenArriving(t *testing.T, r *ReadThrough, d digest.Digest) *Arrival {
	t.Helper()
	file, a, _, err := r.OpenArriving(context.Background(), d)
	if file != nil || err != nil {
		t.Fatalf("not arriving: %v, %v", file, err)
	}
	return a
}

// storeRead reads in the background; the channel gets an error text.
func storeRead(u *storeRanges, a *Arrival, off, n int64) <-chan error {
	result := make(chan error, 1)
	go func() {
		p := make([]byte, n)
		got, err := a.ReadAt(context.Background(), p, off)
		if err == nil && !bytes.Equal(p, u.data[off:off+n]) {
			err = fmt.Errorf("%d other bytes at %d", got, off)
		}
		result <- err
	}()
	synctest.Wait()
	return result
}

func storePending(t *testing.T, result <-chan error) {
	t.Helper()
	select {
	case err := <-result:
		t.Errorf("read ended: %v", err)
	default:
	}
}

func storeWant(t *testing.T, result <-chan error) {
	t.Helper()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// storeWantWhole waits for the end, reads all and looks at the Store.
func storeWantWhole(t *testing.T, s *testStore, u *storeRanges, a *Arrival) {
	t.Helper()
	if err := a.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, len(u.data)+1)
	if n, err := a.ReadAt(context.Background(), p, 0); err != io.EOF || !bytes.Equal(p[:n], u.data) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if b, err := s.ReadBlob(context.Background(), a.digest); err != nil || !bytes.Equal(b, u.data) {
		t.Errorf("stored %d bytes, %v", len(b), err)
	}
	a.Close()
	a.Close()
	storeWantConsistent(t, s)
}

func TestStoreArrivingBytesAreReadAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u, a := storeArrive(t)
		first, second := storeRead(u, a, 0, 100), storeRead(u, a, 50, 1000)
		c := <-u.calls
		if err := c.next(99); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		storePending(t, first)
		if err := c.next(1); err != nil {
			t.Error(err)
		}
		storeWant(t, first)
		synctest.Wait()
		storePending(t, second)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		p := make([]byte, 20)
		if n, err := a.ReadAt(ended, p, 80); n != 20 || err != nil {
			t.Errorf("what is there was not read at once: %d, %v", n, err)
		}
		if _, err := a.ReadAt(ended, p, 90); !errors.Is(err, context.Canceled) {
			t.Errorf("what is not there: %v", err)
		}
		if s.Contains(a.digest) {
			t.Error("a part of a blob is shown")
		}
		u.free()
		storeWant(t, second)
		storeWantWhole(t, s, u, a)
		if n := len(u.calls); n > 0 {
			t.Errorf("%d more calls", n)
		}
	})
}

func TestStoreArrivingRandomOffsetsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u, a := storeArrive(t)
		main := <-u.calls
		read := storeRead(u, a, 12<<20, 100)
		far := <-u.calls
		if main.offset != 0 || far.offset != 12<<20 {
			t.Errorf("calls from %d and %d", main.offset, far.offset)
		}
		if err := far.next(1000); err != nil {
			t.Error(err)
		}
		storeWant(t, read)
		// Bytes that the far call will soon deliver do not cause another call.
		read = storeRead(u, a, 12<<20+500_000, 10)
		storePending(t, read)
		if err := far.next(600_000); err != nil {
			t.Error(err)
		}
		storeWant(t, read)
		// The first call ends where the far one began; the far one continues to the end.
		if err := main.next(12 << 20); err != nil {
			t.Error(err)
		}
		if err := main.next(1); !errors.Is(err, errEnough) {
			t.Errorf("bytes that are there were taken: %v", err)
		}
		synctest.Wait()
		if err := far.next(4<<20 - 601_000); err != nil {
			t.Errorf("the rest was not taken: %v", err)
		}
		far.end(nil)
		storeWantWhole(t, s, u, a)
		if n := len(u.calls); n > 0 {
			t.Errorf("%d more calls", n)
		}
	})
}

// storeWantLost wants a call to have been overtaken, and none to take its place.
func storeWantLost(t *testing.T, u *storeRanges, call *storeCall) {
	t.Helper()
	if err := call.next(1); !errors.Is(err, errEnough) {
		t.Errorf("bytes that are there were taken: %v", err)
	}
	synctest.Wait()
	if n := len(u.calls); n > 0 {
		t.Errorf("%d more calls", n)
	}
}

// Of two calls the one that has the bytes first brings them, and the other one ends.
func TestStoreArrivingFasterCallBrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u, a := storeArrive(t)
		main := <-u.calls
		read := storeRead(u, a, 2<<20, 100)
		far := <-u.calls
		if err := main.next(2<<20 + 100); err != nil {
			t.Error(err)
		}
		storeWant(t, read)
		storeWantLost(t, u, far)
		u.free()
		storeWantWhole(t, s, u, a)
	})
}

// A call that delivers the first bytes for which another call was made delivers all of them.
func TestStoreArrivingOvertakingCallGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u, a := storeArrive(t)
		<-u.calls
		first := storeRead(u, a, 2<<20, 100)
		near := <-u.calls
		second := storeRead(u, a, 2<<20+streamAhead, 200) // the first call goes half as far
		far := <-u.calls
		if err := near.next(streamAhead + 200); err != nil {
			t.Error(err)
		}
		storeWant(t, first)
		storeWant(t, second)
		storeWantLost(t, u, far)
		u.free()
		storeWantWhole(t, s, u, a)
	})
}

// A far call ends when it is far enough ahead of all readers.
func TestStoreArrivingFarCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u, a := storeArrive(t)
		<-u.calls
		storeReads := storeRead(u, a, 2<<20, 100)
		far := <-u.calls
		if err := far.next(streamAhead + 100); err != nil {
			t.Error(err)
		}
		storeWant(t, storeReads)
		if err := far.next(1); !errors.Is(err, errEnough) {
			t.Errorf("more than anybody wants: %v", err)
		}
		synctest.Wait()
		read := storeRead(u, a, streamAhead+2<<20, 200)
		again := <-u.calls
		if again.offset != streamAhead+2<<20+100 {
			t.Errorf("goes on at %d", again.offset)
		}
		u.free()
		storeWant(t, read)
		storeWantWhole(t, s, u, a)
	})
}

func TestStoreArrivingCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u, a := storeArrive(t)
		main := <-u.calls
		var reads []<-chan error
		for i := range int64(7) {
			reads = append(reads, storeRead(u, a, (i+1)*(2<<20), 100))
		}
		if n := len(u.calls); n != maxStreams {
			t.Errorf("%d calls beside the first", n)
		}
		if err := main.next(1 << 10); err != nil {
			t.Error(err)
		}
		var calls []*storeCall // calls that deliver bytes for which a reader waits
		for i := range reads {
			for len(calls) < min(i+2, len(reads)) { // each ends where the next one began
				far := <-u.calls
				if far.offset != int64(len(calls)+1)*(2<<20) {
					t.Errorf("call %d from %d: not in the order of waiting", len(calls), far.offset)
				}
				if err := far.next(100); err != nil {
					t.Error(err)
				}
				storeWant(t, reads[len(calls)])
				calls = append(calls, far)
			}
			far := calls[i]
			for err := error(nil); err == nil; err = far.next(min(64<<10, int64(len(u.data))-far.at)) {
				if far.at == int64(len(u.data)) {
					far.end(nil)
					break
				}
			}
			synctest.Wait()
			if far.at > far.offset+streamAhead+100 {
				t.Errorf("call %d went to %d", i, far.at)
			}
		}
		u.free()
		storeWantWhole(t, s, u, a)
	})
}

func TestStoreArrivingBlobsThatAreWrong(t *testing.T) {
	broken := errors.New("broken")
	for what, c := range map[string]struct {
		upstream func(*storeCall) // after the first 1000 bytes
		want     error
	}{
		"changed": {func(c *storeCall) {
			_ = c.send(append(bytes.Clone(c.data[1000:len(c.data)-1]), c.data[len(c.data)-1]+1))
		}, cas.ErrCorrupt},
		"short":   {func(c *storeCall) { c.end(nil) }, cas.ErrCorrupt},
		"long":    {func(c *storeCall) { _ = c.send(append(bytes.Clone(c.data[1000:]), 'x')) }, cas.ErrCorrupt},
		"missing": {func(c *storeCall) { c.end(&cas.MissingError{}) }, cas.ErrNotFound},
		"broken":  {func(c *storeCall) { c.end(broken) }, broken},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, u, a := storeArrive(t)
				other := storeOpenArriving(t, s.Through(u), a.digest)
				before, waits := storeRead(u, a, 0, 1000), storeRead(u, a, 900, 5<<20)
				main := <-u.calls
				if err := main.next(1000); err != nil {
					t.Error(err)
				}
				storeWant(t, before)
				c.upstream(main)
				err := a.Wait(context.Background())
				waited := <-waits                 // it may have been in time
				if err == nil && what == "long" { // what is too much came after the whole blob was there, and right
					if waited != nil {
						t.Error(waited)
					}
					a.Close()
					storeWantWhole(t, s, u, other)
					return
				}
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), a.digest.Hash()) {
					t.Errorf("waited for: %v", err)
				}
				for _, off := range []int64{0, 8 << 20} {
					n, err := a.ReadAt(context.Background(), make([]byte, 10), off)
					if n != 0 || !errors.Is(err, c.want) || !strings.Contains(err.Error(), a.digest.Hash()) {
						t.Errorf("read after the failure at %d: %d bytes, %v", off, n, err)
					}
				}
				a.Close()
				// Of wrong bytes upstream is asked again, for all of them.
				if there, again := s.Contains(a.digest), errors.Is(c.want, cas.ErrCorrupt); there != again {
					t.Errorf("it is stored: %t", there)
				}
				// A caller that has not read anything is served by its own upstream.
				u.free()
				storeWantWhole(t, s, u, other)
			})
		})
	}
}

func TestStoreArrivalEndsWithItsLastAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u, a := storeArrive(t)
		other := storeOpenArriving(t, s.Through(u), a.digest)
		main := <-u.calls
		if err := main.next(1000); err != nil {
			t.Error(err)
		}
		a.Close()
		if _, err := a.ReadAt(context.Background(), make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("read of what is closed: %v", err)
		}
		storeWant(t, storeRead(u, other, 0, 1000))
		loading, cancel := context.WithCancel(context.Background())
		loaded := make(chan error)
		go func() { loaded <- s.Through(u).Load(loading, []digest.Digest{a.digest}) }()
		synctest.Wait()
		other.Close()
		if err := main.next(1000); err != nil {
			t.Errorf("cancelled while somebody loads it: %v", err)
		}
		cancel()
		if err := <-loaded; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		storeWantConsistent(t, s)
		if n := s.Stats().ReservedBytes; n != 0 {
			t.Errorf("%d bytes are reserved for nobody", n)
		}
		again := storeOpenArriving(t, s.Through(u), a.digest)
		if c := <-u.calls; c.offset != 0 {
			t.Errorf("began again at %d", c.offset)
		}
		u.free()
		storeWantWhole(t, s, u, again)
	})
}

func TestStoreArrivalIsSharedWithWholeReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, d := storeNewRanges(servertest.Bytes(7, storeArriving))
		s := storeOpen(t, t.TempDir(), storeOptions{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if b, err := s.Through(u).ReadBlob(context.Background(), d); err != nil || !bytes.Equal(b, u.data) {
					t.Errorf("%d bytes, %v", len(b), err)
				}
			})
		}
		synctest.Wait()
		r := s.Through(u)
		var arrivals []*Arrival
		for range 3 {
			arrivals = append(arrivals, storeOpenArriving(t, r, d))
		}
		if n := len(u.calls); n != 1 {
			t.Errorf("%d calls", n)
		}
		u.free()
		wg.Wait()
		file, a, _, err := r.OpenArriving(context.Background(), d)
		if file == nil || a != nil || err != nil {
			t.Fatalf("what is whole: %v, %v", a, err)
		}
		_ = file.Close()
		for _, a := range arrivals[1:] {
			if err := a.Wait(context.Background()); err != nil {
				t.Error(err)
			}
			a.Close()
		}
		storeWantWhole(t, s, u, arrivals[0])
		if blobs, n := r.Fetched(); blobs != 0 || n != 0 {
			t.Errorf("fetched %d blobs, %d bytes, of another's fetch", blobs, n)
		}
		if n := len(u.calls); n != 1 || len(u.storeUpstream.calls) > 0 {
			t.Errorf("%d calls, %d of Fetch", n, len(u.storeUpstream.calls))
		}
	})
}

func TestStoreSmallOrRangelessBlobsDoNotArrive(t *testing.T) {
	u, d := storeNewRanges(servertest.Bytes(7, 1000))
	for above, upstream := range map[int64]cas.Fetcher{1000: u, 999: u.storeUpstream} {
		s := storeOpen(t, t.TempDir(), storeOptions{ArriveAbove: above})
		file, a, _, err := s.Through(upstream).OpenArriving(t.Context(), d)
		if a != nil || err != nil {
			t.Fatal(a, err)
		}
		_ = file.Close()
	}
	if got := u.storeSizes(); !slices.Equal(got, []int{1, 1}) || len(u.calls) > 0 {
		t.Errorf("calls of Fetch: %v", got)
	}
}

func TestStoreArrivingTakesRoomAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, d := storeNewRanges(servertest.Bytes(7, 40<<20))
		s := storeOpen(t, t.TempDir(), storeOptions{MaxBytes: 40<<20 + 10})
		old := storePut(t, s, strings.Repeat("x", 20<<20))
		a := storeOpenArriving(t, s.Through(u), d)
		main := <-u.calls
		if err := main.next(1000); err != nil {
			t.Error(err)
		}
		if !s.Contains(old) {
			t.Error("the announced size alone emptied the store")
		}
		u.free()
		storeWantWhole(t, s, u, a)
		if s.Contains(old) {
			t.Error("the store holds more than its bound")
		}

		s = storeOpen(t, t.TempDir(), storeOptions{MaxBytes: 30 << 20})
		if err := storeOpenArriving(t, s.Through(u), d).Wait(context.Background()); !errors.Is(err, cas.ErrNoSpace) {
			t.Errorf("more than the store holds: %v", err)
		}
	})
}

func TestStoreCloseEndsArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u, a := storeArrive(t)
		main := <-u.calls
		if err := main.next(1000); err != nil {
			t.Error(err)
		}
		read := storeRead(u, a, 5000, 10)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-read; err == nil {
			t.Error("read from a closed store")
		}
		a.Close()
	})
}

// TestStoreArrivingUnderManyHands has readers start and stop at random.
func TestStoreArrivingUnderManyHands(t *testing.T) {
	data := servertest.Bytes(9, 10<<20)
	f := servertest.Start(t, servertest.Config{})
	d := f.Put(t, digest.SHA256, data)
	for round := range 3 {
		s := storeOpen(t, t.TempDir(), storeOptions{})
		var wg sync.WaitGroup
		for hand := range 6 {
			wg.Go(func() {
				for i := range 20 {
					file, a, _, err := s.Through(clientOf(f, client.Options{})).OpenArriving(t.Context(), d)
					if err != nil {
						t.Error(err)
						return
					}
					var r io.ReaderAt = file
					if a != nil {
						r = storeReaderAt{t.Context(), a}
					}
					off := int64((i*(hand+3)*7919 + round*104729) * 4099 % (len(data) - 5000))
					p := make([]byte, 5000)
					if _, err := r.ReadAt(p, off); err != nil || !bytes.Equal(p, data[off:][:5000]) {
						t.Errorf("read at %d: %v", off, err)
					}
					if a != nil {
						a.Close()
					} else {
						_ = file.Close()
					}
				}
			})
		}
		wg.Wait()
		s.running.Wait()
		storeWantConsistent(t, s)
	}
}

type storeReaderAt struct {
	ctx context.Context
	a   *Arrival
}

func (r storeReaderAt) ReadAt(p []byte, off int64) (int, error) { return r.a.ReadAt(r.ctx, p, off) }
