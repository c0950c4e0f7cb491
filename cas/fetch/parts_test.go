package fetch

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// partsAt are parts of that size at multiples of a distance.
func partsAt(n int, distance, size int64) (parts []span.Span) {
	for i := range int64(n) {
		parts = append(parts, span.Span{From: (i + 1) * distance, To: (i+1)*distance + size})
	}
	return parts
}

// partCalls takes the calls that were made, which are to be for just these parts.
func partCalls(t *testing.T, u *storeRanges, parts ...span.Span) (calls []*storeCall) {
	t.Helper()
	synctest.Wait()
	var got []span.Span
	for len(u.calls) > 0 {
		c := <-u.calls
		calls = append(calls, c)
		got = append(got, span.Span{From: c.offset, To: int64(len(c.data))})
	}
	slices.SortFunc(got, func(a, b span.Span) int { return int(a.From - b.From) })
	if !slices.Equal(got, parts) {
		t.Errorf("calls for %v, want %v", got, parts)
	}
	slices.SortFunc(calls, func(a, b *storeCall) int { return int(a.offset - b.offset) })
	return calls
}

// Predicted parts are fetched alone, a few at a time. They can be read at once, do not count as the
// blob, and the rest is fetched when a caller opens the blob, in one call that skips the parts.
func TestPartsComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, d := storeNewRanges(servertest.Bytes(7, storeArriving))
		s := storeOpen(t, t.TempDir(), storeOptions{})
		r := s.Through(u)
		parts := partsAt(maxHints+2, 1<<19, 64<<10)
		release := r.PrefetchRanges(t.Context(), d, parts)
		for _, part := range partCalls(t, u, parts[:maxHints]...) {
			if err := part.next(64 << 10); err != nil {
				t.Error(err)
			}
			part.end(nil)
		}
		for _, part := range partCalls(t, u, parts[maxHints:]...) {
			if err := part.next(64 << 10); err != nil {
				t.Error(err)
			}
			part.end(nil)
		}
		partCalls(t, u)
		if missing, err := s.FindMissing(t.Context(), []digest.Digest{d}); s.Contains(d) || len(missing) != 1 || err != nil {
			t.Errorf("parts of a blob are shown as one: %v, %v", missing, err)
		}
		a := storeOpenArriving(t, s.Through(u), d)
		rest := partCalls(t, u, span.Span{From: 0, To: storeArriving})
		for _, p := range parts {
			storeWant(t, storeRead(u, a, p.From, p.To-p.From))
		}
		partCalls(t, u) // none for parts that have arrived
		for err := error(nil); err == nil && rest[0].at < storeArriving; err = rest[0].next(min(100_000, storeArriving-rest[0].at)) {
		}
		rest[0].end(nil)
		storeWantWhole(t, s, u, a)
		partCalls(t, u)
		release()
		storeWantConsistent(t, s)
	})
}

// TestNothingTwice: the calls for the rest of a blob do not ask for a part that has arrived, unless
// that is shorter than a round trip. What storage has sent cannot be taken back.
func TestNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, d := storeNewRanges(servertest.Bytes(7, storeArriving))
		s := storeOpen(t, t.TempDir(), storeOptions{})
		long := span.Span{From: 1 << 20, To: 1<<20 + streamSkip + 1}
		short := span.Span{From: long.To + 100_000, To: long.To + 200_000}
		release := s.Through(u).PrefetchRanges(t.Context(), d, []span.Span{long, short})
		for _, c := range partCalls(t, u, long, short) {
			if err := c.next(int64(len(c.data)) - c.at); err != nil {
				t.Error(err)
			}
			c.end(nil)
		}
		a := storeOpenArriving(t, s.Through(u), d)
		for _, part := range []span.Span{{From: 0, To: long.From}, {From: long.To, To: storeArriving}} {
			for _, c := range partCalls(t, u, part) {
				if err := c.next(part.To - part.From); err != nil {
					t.Error(err)
				}
				c.end(nil)
			}
		}
		storeWantWhole(t, s, u, a)
		partCalls(t, u)
		release()
		storeWantConsistent(t, s)
	})
}

// Unopened parts are dropped when their PrefetchRanges is released. A Prefetch of the blob fetches
// the rest.
func TestPartsAreKeptUntilReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, d := storeNewRanges(servertest.Bytes(7, storeArriving))
		s := storeOpen(t, t.TempDir(), storeOptions{})
		r := s.Through(u)
		parts := partsAt(2, 3<<20, 64<<10)
		releases := []func(){r.PrefetchRanges(t.Context(), d, parts), s.Through(u).PrefetchRanges(t.Context(), d, parts[:1])}
		for _, part := range partCalls(t, u, parts...) {
			if err := part.next(64 << 10); err != nil {
				t.Error(err)
			}
			part.end(nil)
		}
		releases[0]()
		synctest.Wait()
		if n := s.Stats().ReservedBytes; n == 0 {
			t.Error("parts were dropped that somebody keeps")
		}
		releases[1]()
		synctest.Wait()
		if n := s.Stats().ReservedBytes; n != 0 {
			t.Errorf("%d bytes are reserved for nobody", n)
		}
		release := r.PrefetchRanges(t.Context(), d, parts)
		partCalls(t, u, parts...)
		u.free()
		if got, err := r.Prefetch(t.Context(), []digest.Digest{d}); len(got) != 1 || err != nil {
			t.Errorf("prefetched %v, %v", got, err)
		}
		release()
		if b, err := s.ReadBlob(t.Context(), d); err != nil || !bytes.Equal(b, u.data) {
			t.Errorf("stored %d bytes, %v", len(b), err)
		}
		storeWantConsistent(t, s)
	})
}

// Parts for which a reader waits come first, as far as they were predicted.
func TestPartsThatAreWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, d := storeNewRanges(servertest.Bytes(7, storeArriving))
		s := storeOpen(t, t.TempDir(), storeOptions{})
		parts := partsAt(maxHints+3, 1<<19, 128<<10)
		release := s.Through(u).PrefetchRanges(t.Context(), d, parts)
		defer release()
		partCalls(t, u, parts[:maxHints]...)
		a := storeOpenArriving(t, s.Through(u), d)
		partCalls(t, u, span.Span{From: 0, To: storeArriving})
		last := parts[len(parts)-1]
		read := storeRead(u, a, last.From+4096, 4096)
		wanted := partCalls(t, u, span.Span{From: last.From + 4096, To: last.To})
		if err := wanted[0].next(4096); err != nil {
			t.Error(err)
		}
		storeWant(t, read)
		u.free()
		storeWantWhole(t, s, u, a)
	})
}

// A failure of a hint causes no failure elsewhere.
func TestPartsThatFail(t *testing.T) {
	for what, fail := range map[string]func(*storeCall){
		"broken":    func(c *storeCall) { c.end(errors.New("broken")) },
		"missing":   func(c *storeCall) { c.end(&cas.MissingError{}) },
		"too short": func(c *storeCall) { c.end(nil) },
		"too long":  func(c *storeCall) { _ = c.send(bytes.Repeat([]byte{0}, 64<<10+1)) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, _ := storeNewRanges(servertest.Bytes(7, storeArriving))
				clear(u.data[1<<20:][:64<<10])
				d := digest.Of(digest.SHA256, u.data)
				s := storeOpen(t, t.TempDir(), storeOptions{})
				// The last one ends with the blob.
				parts := append(partsAt(2, 1<<20, 64<<10), span.Span{From: storeArriving - 9, To: storeArriving})
				release := s.Through(u).PrefetchRanges(t.Context(), d, parts)
				defer release()
				calls := partCalls(t, u, parts...)
				a := storeOpenArriving(t, s.Through(u), d)
				partCalls(t, u, all)
				read := storeRead(u, a, parts[1].From, 100)
				if err := calls[1].next(64 << 10); err != nil {
					t.Error(err)
				}
				storeWant(t, read) // from now on a failure is final
				fail(calls[0])
				if what != "too long" {
					fail(calls[2])
				}
				u.free()
				storeWantWhole(t, s, u, a)
			})
		})
	}
}

// Unread parts do not delay readers of the rest.
func TestPartsThatAreStrange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, d := storeNewRanges(servertest.Bytes(7, storeArriving))
		s := storeOpen(t, t.TempDir(), storeOptions{})
		parts := partsAt(maxHints+5, 1<<19, 64<<10)
		release := s.Through(u).PrefetchRanges(t.Context(), d, parts)
		defer release()
		calls := partCalls(t, u, parts[:maxHints]...)
		a := storeOpenArriving(t, s.Through(u), d)
		var at int64
		for range fewStrange {
			read := storeRead(u, a, at, 100)
			if synctest.Wait(); len(u.calls) > 0 {
				calls = append(calls, <-u.calls)
			}
			if err := calls[maxHints].next(100); err != nil {
				t.Fatal(err)
			}
			storeWant(t, read)
			at += 100
		}
		for _, c := range calls[:maxHints] {
			if err := c.next(64 << 10); err != nil {
				t.Error(err)
			}
			c.end(nil)
		}
		partCalls(t, u) // none for the parts that were queued
		u.free()
		storeWantWhole(t, s, u, a)
	})
}

// Parts of a blob that is already being fetched or queued join it. Parts of a local blob are
// ignored.
func TestPartsOfWhatComesAnyhow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, d := storeNewRanges(servertest.Bytes(7, storeArriving))
		s := storeOpen(t, t.TempDir(), storeOptions{})
		a := storeOpenArriving(t, s.Through(u), d)
		partCalls(t, u, span.Span{From: 0, To: storeArriving})
		parts := partsAt(2, 3<<20, 64<<10)
		release := s.Through(u).PrefetchRanges(t.Context(), d, parts)
		partCalls(t, u, parts...)
		u.free()
		storeWantWhole(t, s, u, a)
		release()
		for len(u.calls) > 0 {
			<-u.calls
		}
		s.Through(u).PrefetchRanges(t.Context(), d, parts)()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		other := digest.Of(digest.SHA256, []byte("other"))
		s.Through(u).PrefetchRanges(ended, other, parts)()
		s.Through(u).PrefetchRanges(t.Context(), other, parts)() // too small
		partCalls(t, u)
	})
}

// TestPartsOverTheWire fetches parts from a real storage that compresses.
func TestPartsOverTheWire(t *testing.T) {
	data := slices.Concat(servertest.Bytes(9, 10<<20), bytes.Repeat([]byte("compressible"), 1<<20))
	f := servertest.Start(t, servertest.Config{})
	d := f.Put(t, digest.SHA256, data)
	s := storeOpen(t, t.TempDir(), storeOptions{})
	r := s.Through(clientOf(f, client.Options{}))
	parts := partsAt(10, 2<<20, 100_000)
	release := r.PrefetchRanges(t.Context(), d, parts)
	defer release()
	a := storeOpenArriving(t, r, d)
	defer a.Close()
	for _, part := range parts {
		p := make([]byte, part.To-part.From)
		if _, err := a.ReadAt(t.Context(), p, part.From); err != nil || !bytes.Equal(p, data[part.From:part.To]) {
			t.Errorf("%v: %v", part, err)
		}
	}
	if err := a.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if b, err := s.ReadBlob(t.Context(), d); err != nil || !bytes.Equal(b, data) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
