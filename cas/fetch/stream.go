package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// The bounds of an arrival.
const (
	// maxStreams is how many streams fill an arrival, not counting the one that
	// goes on from the part that has no hole.
	maxStreams = 3
	// streamAhead is how far a stream that was opened for a reader goes on behind
	// what that reader wants.
	streamAhead = 4 << 20
	// streamReach is how far before the wanted byte a stream may be to be waited
	// for; what is farther ahead is worth a round trip.
	streamReach = 1 << 20
	// streamPiece bounds what is written before readers hear of it.
	streamPiece = 256 << 10
)

// errEnough ends a stream whose next bytes somebody else fetches, or nobody wants.
var errEnough = errors.New("no more is needed")

// A stream is one call of FetchFrom that fills the hole at next. It is the
// io.Writer of that call.
type stream struct {
	a       *arrival
	from    cas.RangeFetcher
	serial  int
	next    int64 // guarded by a.mu for writing; its own call reads it without
	came    bool  // guarded by a.mu; some of its bytes have, or are being written
	until   int64 // guarded by a.mu; it goes no further
	enough  bool  // guarded by a.mu; it was ended by errEnough
	surplus bool  // guarded by a.mu; bytes came after the last one
}

// A plan is what fetch does next.
type plan struct {
	start   []*stream
	whole   int64           // the file has no hole before
	changed <-chan struct{} // set when there is nothing to hash
}

// plan decides which streams there shall be: one that fills the first hole, and
// for each waiting reader one that will soon be there, as far as the bound lets.
func (a *arrival) plan(hashed int64) (plan, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return plan{}, a.err
	}
	p := plan{whole: a.have.end(0)}
	if s := a.nearestLocked(p.whole); s != nil && s.next == p.whole {
		s.until = a.digest.SizeBytes()
	} else if p.whole < a.digest.SizeBytes() {
		p.start = append(p.start, a.openLocked(p.whole, a.digest.SizeBytes()))
	}
	for _, w := range a.wants {
		at := a.have.end(w.from)
		if at >= w.to {
			continue
		}
		if s := a.nearestLocked(at); s != nil && at-s.next <= streamReach {
			s.until = max(s.until, min(w.to+streamAhead, a.digest.SizeBytes()))
		} else if len(a.streams) <= maxStreams {
			p.start = append(p.start, a.openLocked(at, min(w.to+streamAhead, a.digest.SizeBytes())))
		}
	}
	if p.whole == hashed {
		p.changed = a.changedLocked()
	}
	return p, nil
}

// nearestLocked returns the stream that comes to at first, nil if none does.
func (a *arrival) nearestLocked(at int64) *stream {
	var nearest *stream
	from := a.have.gap(at, a.digest.SizeBytes()).from
	for _, s := range a.streams {
		if !s.enough && from <= s.next && s.next <= at && (nearest == nil || s.next > nearest.next) {
			nearest = s
		}
	}
	return nearest
}

func (a *arrival) openLocked(next, until int64) *stream {
	a.serial++
	s := &stream{a: a, from: a.upstream, serial: a.serial, next: next, until: until}
	if a.behind != nil && len(a.wants) == 0 {
		s.from = a.behind
	}
	a.streams = append(a.streams, s)
	return s
}

// limitLocked returns how far s may write now: not over what is there or is being
// got. Of two streams at the same place the newer one goes on, once anything of it
// has come: until then, whoever is faster does.
func (a *arrival) limitLocked(s *stream) int64 {
	if a.have.end(s.next) > s.next {
		return s.next
	}
	limit := min(s.until, a.have.gap(s.next, a.digest.SizeBytes()).to)
	for _, o := range a.streams {
		if !o.enough && o.came && (o.next > s.next || o.next == s.next && o.serial > s.serial) {
			limit = min(limit, o.next)
		}
	}
	return limit
}

// Write takes the bytes that follow. It fails with errEnough when s is to end.
func (s *stream) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		piece, err := s.admit(p[done:])
		if err != nil {
			return done, err
		}
		if _, err := s.a.in.WriteAt(piece, s.next); err != nil {
			return done, err
		}
		s.arrived(int64(len(piece)))
		done += len(piece)
	}
	return done, nil
}

// admit returns how much of p is wanted.
func (s *stream) admit(p []byte) ([]byte, error) {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil, a.err
	}
	if s.next == a.digest.SizeBytes() {
		s.surplus = true
		return nil, fmt.Errorf("%w: more than %d bytes came", cas.ErrCorrupt, s.next)
	}
	n := min(a.limitLocked(s)-s.next, int64(len(p)), streamPiece)
	if n <= 0 || s.enough {
		s.enough = true
		return nil, errEnough
	}
	s.came = true
	for _, o := range a.streams {
		if !o.came && s.next <= o.next && o.next < s.next+n {
			o.enough = true // nothing may be written twice, so s fetches what o was for
			s.until = max(s.until, o.until)
		}
	}
	return p[:n], nil
}

func (s *stream) arrived(n int64) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.a.have.add(span{s.next, s.next + n})
	s.next += n
	s.a.changeLocked()
}

// ended takes s out. That it ended with err, or too early, is the failure of the
// arrival, unless it was told to.
func (s *stream) ended(err error) {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, o := range a.streams {
		if o == s {
			a.streams = append(a.streams[:i], a.streams[i+1:]...)
			break
		}
	}
	if err == nil && s.next < a.digest.SizeBytes() && !s.enough {
		err = fmt.Errorf("%w: only %d bytes came", cas.ErrCorrupt, s.next)
	}
	needed := s.next < a.digest.SizeBytes() && a.have.end(s.next) == s.next
	if err != nil && !s.enough && a.err == nil && (needed || s.surplus) {
		a.err = err
	}
	a.changeLocked()
}

// arrive fetches the one blob of b, which can be read meanwhile.
func (t *ReadThrough) arrive(ctx context.Context, b *batch) {
	fl := b.flights[b.digests[0]]
	err := fl.arrival.fetch(ctx)
	if err == nil {
		err = fl.arrival.keep(ctx)
	}
	if err != nil {
		err = fmt.Errorf("fetch blob %s: %w", fl.digest, err)
		if errors.Is(err, cas.ErrCorrupt) {
			err = t.doubt(ctx, fl.digest, err)
		}
		fl.arrival.drop(err)
	}
	t.end(fl, err)
}

// doubt fetches d, of which parts came that make wrong bytes, again and as a whole: that
// has a storage that verifies what it reads look at its blob, and set it aside. The right
// bytes are there for the next one who asks. It returns why d has not come: err, which is a
// *cas.WrongPartsError if they are, or that upstream turns out not to have it.
func (t *ReadThrough) doubt(ctx context.Context, d digest.Digest, err error) error {
	again := t.direct.Fetch(ctx, []digest.Digest{d}, func(_ digest.Digest, r io.Reader) error {
		return t.store.Put(ctx, d, r)
	})
	if again == nil {
		return errors.Join(err, &cas.WrongPartsError{Digest: d})
	}
	if errors.Is(again, cas.ErrNotFound) {
		return fmt.Errorf("%w, and then: %w", err, &cas.MissingError{Digests: []digest.Digest{d}})
	}
	return err
}
