package fetch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/span"
)

// The bounds of an arrival.
const (
	// maxStreams limits the streams of an arrival, not counting the one that continues from the
	// part without holes.
	maxStreams = 3
	// streamAhead is how many bytes a stream that was opened for a reader delivers beyond the
	// reader's bytes.
	streamAhead = 4 << 20
	// streamReach is the maximum distance of a stream before the wanted byte for which a reader
	// waits. A larger distance is worth a new stream.
	streamReach = 1 << 20
	// streamSkip is the maximum size of an existing part that a stream to the end reads and drops,
	// which takes less than a round trip.
	streamSkip = 1 << 20
	// streamPiece bounds what is written before readers hear of it.
	streamPiece = 256 << 10
)

// errEnough ends a stream whose next bytes another stream fetches, or no caller wants.
var errEnough = errors.New("no more is needed")

// A stream is one call of FetchRange that fills the hole at next. It is the
// io.Writer of that call.
type stream struct {
	a       *arrival
	from    cas.RangeFetcher
	part    span.Span // that the call asks for
	purpose purpose
	serial  int

	// These are guarded by a.mu.
	begun  bool // its call waits for no others
	state  streamState
	next   int64
	skip   int64  // number of bytes before the one at next
	until  int64  // it goes no further
	cancel func() // ends the call; nil before it begins
}

// A purpose is the reason why a stream was opened.
type purpose uint8

const (
	forReaders purpose = iota // a caller waits
	forRest                   // no caller waits: the whole blob is wanted
	forHint                   // no caller waits: the part was predicted
)

// A streamState is where a stream is. It goes from silent by flowing and writing, again and again,
// to one of the others, or its call ends before.
type streamState uint8

const (
	silent    streamState = iota // nothing of it has come
	flowing                      // some has
	writing                      // the bytes at next are being written
	enough                       // errEnough ends it
	overtaken                    // the same, before any byte arrived
	surplus                      // bytes arrived after the last one
)

// came reports whether any bytes of a stream have arrived.
func (s streamState) came() bool { return s != silent && s != overtaken }

// stopped reports whether errEnough ends it.
func (s streamState) stopped() bool { return s == enough || s == overtaken }

// stop returns the state of a stream that errEnough ends from now on.
func (s streamState) stop() streamState {
	if s.came() {
		return enough
	}
	return overtaken
}

// behind reports whether its call stands behind others, so that it may take long before there is
// one.
func (s *stream) behind() bool { return s.purpose != forReaders && s.a.behind != nil }

// toEnd reports whether the call asks for all that follows.
func (s *stream) toEnd() bool { return s.part.To == s.a.digest.SizeBytes() }

// A plan has the next steps of fetch.
type plan struct {
	start   []*stream
	whole   int64           // the file has no hole before
	changed <-chan struct{} // set when there is nothing to hash
	stop    stop            // of what no caller waits for
}

// wait waits until there may be another plan, or ctx has ended.
func (p plan) wait(ctx context.Context) {
	most, end := p.stop.timer()
	defer end()
	select {
	case <-p.changed:
	case <-p.stop.changed:
	case <-most:
	case <-ctx.Done():
	}
}

// plan decides which streams to open: one that fills the first hole, one near each waiting reader,
// and some for predicted parts, up to the limits.
func (a *arrival) plan(hashed int64, s stop) (plan, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return plan{}, a.err
	}
	p := plan{whole: a.have.End(0), stop: s}
	a.planWholeLocked(&p)
	a.planWantsLocked(&p)
	a.planForeseenLocked(&p)
	if p.whole == hashed {
		p.changed = a.changedLocked()
	}
	return p, nil
}

// planWholeLocked fills the first hole: after predicted parts, unless a caller waits for the whole
// blob.
func (a *arrival) planWholeLocked(p *plan) {
	size := a.digest.SizeBytes()
	if !a.whole || p.whole == size || !a.needed && (p.stop.stops() || a.comingLocked()) {
		return
	}
	if s := a.nearestLocked(p.whole, a.needed); s != nil && s.next == p.whole {
		s.until = s.part.To
		return
	}
	hole := a.holeLocked(p.whole)
	p.start = append(p.start, a.openLocked(hole, hole.To))
}

// holeLocked returns what a stream from at should ask for: all up to the next bytes that exist or
// are arriving for a hint. If it asked for more, storage would send what nobody needs before it
// learns of that. Small parts in between come once more.
func (a *arrival) holeLocked(at int64) span.Span {
	size := a.digest.SizeBytes()
	if a.unlimited {
		return span.Span{From: at, To: size}
	}
	comes := slices.Clone(a.have)
	for _, s := range a.streams {
		if s.purpose == forHint && s.state.came() && !s.state.stopped() {
			comes.Add(span.Span{From: s.next, To: s.part.To})
		}
	}
	hole := span.Span{From: at, To: size}
	if end := comes.End(at); end < size {
		hole.To = comes.Gap(end, size).To
	}
	for twice := int64(0); hole.To < size; {
		end := comes.End(hole.To)
		if twice += end - hole.To; twice > streamSkip || end == size {
			break
		}
		hole.To = comes.Gap(end, size).To
	}
	return hole
}

func (a *arrival) planWantsLocked(p *plan) {
	for _, w := range a.wants {
		at := a.have.End(w.From)
		if at >= w.To {
			continue
		}
		if s := a.nearestLocked(at, true); s != nil && at-s.next <= streamReach {
			s.until = max(s.until, min(w.To+streamAhead, s.part.To))
		} else if a.inFrontLocked() <= maxStreams {
			if part, ok := a.foreseen.take(at); ok {
				p.start = append(p.start, a.openLocked(part, part.To))
			} else {
				hole := a.holeLocked(at)
				p.start = append(p.start, a.openLocked(hole, min(w.To+streamAhead, hole.To)))
			}
		}
	}
}

// sureLocked reports whether s is worth waiting for: a low-priority stream may have to wait long
// for its call.
func (s *stream) sureLocked() bool { return s.state.came() || s.begun || !s.behind() }

// inFrontLocked returns the number of streams for waiting callers.
func (a *arrival) inFrontLocked() (n int) {
	for _, s := range a.streams {
		if s.purpose != forHint && s.sureLocked() {
			n++
		}
	}
	return n
}

// nearestLocked returns the stream that reaches at first; nil if none does. With sure it considers
// only streams that are worth waiting for.
func (a *arrival) nearestLocked(at int64, sure bool) *stream {
	var nearest *stream
	from := a.have.Gap(at, a.digest.SizeBytes()).From
	for _, s := range a.streams {
		if sure && !s.sureLocked() {
			continue
		}
		if !s.state.stopped() && from <= s.next && s.next <= at && at < s.part.To && (nearest == nil || s.next > nearest.next) {
			nearest = s
		}
	}
	return nearest
}

// openLocked opens a stream for waiting callers, or for the rest if no caller waits.
func (a *arrival) openLocked(part span.Span, until int64) *stream {
	if !a.needed && len(a.wants) == 0 {
		return a.openForLocked(forRest, part, until)
	}
	return a.openForLocked(forReaders, part, until)
}

func (a *arrival) openForLocked(p purpose, part span.Span, until int64) *stream {
	a.serial++
	s := &stream{a: a, from: a.upstream, serial: a.serial, purpose: p, part: part, next: part.From, until: until}
	if s.behind() {
		s.from = a.behind
	}
	a.streams = append(a.streams, s)
	return s
}

// call makes the call of s; a hint waits for its place first.
func (s *stream) call(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.a.mu.Lock()
	s.cancel = cancel
	over := s.state.stopped()
	s.a.mu.Unlock()
	if over {
		return errEnough
	}
	if s.purpose == forHint {
		select {
		case s.a.hints <- struct{}{}:
			defer func() { <-s.a.hints }()
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.from.FetchRange(ctx, s.a.digest, s.part, s)
}

// overtakenLocked ends s, of which no bytes have arrived: at once if it may be waiting for its
// call.
func (s *stream) overtakenLocked() {
	s.state = overtaken
	if s.behind() && s.cancel != nil {
		s.cancel()
	}
}

// limitLocked returns how far s may write now: not into bytes that exist or that another stream
// fetches. Of two streams at the same position, the one that writes continues; otherwise the newer
// one continues once its first bytes have arrived. Until then, the faster one does.
func (a *arrival) limitLocked(s *stream) int64 {
	if a.have.End(s.next) > s.next {
		return s.next
	}
	limit := min(s.until, a.have.Gap(s.next, a.digest.SizeBytes()).To)
	for _, o := range a.streams {
		if o.state.came() && !o.state.stopped() && (o.next > s.next || o.next == s.next && o != s && (o.state == writing || o.serial > s.serial)) {
			limit = min(limit, o.next)
		}
	}
	return limit
}

// Write takes the bytes that follow. It fails with errEnough when s should end.
func (s *stream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, s.begin()
	}
	done := 0
	if s.purpose == forRest && s.a.stopped().stops() && s.yields() {
		return 0, errEnough
	}
	for done < len(p) {
		piece, err := s.admit(p[done:])
		if err != nil {
			return done, err
		}
		if !piece.known {
			if _, err := s.a.in.WriteAt(piece.bytes, piece.at); err != nil {
				return done, err
			}
			s.arrived(int64(len(piece.bytes)))
		}
		done += len(piece.bytes)
	}
	return done, nil
}

// begin notes that the call of s waits for no others.
func (s *stream) begin() error {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if s.state.stopped() {
		return errEnough
	}
	s.begun = true
	return nil
}

// yields ends s, and reports whether it did: no caller waits for it, and another one continues
// later.
func (s *stream) yields() bool {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if s.a.err != nil || s.a.needed || s.next == s.a.digest.SizeBytes() {
		return false
	}
	s.state = s.state.stop()
	return true
}

// A piece is a number of bytes that a stream receives at once.
type piece struct {
	bytes []byte
	at    int64
	known bool // these bytes exist already
}

// admit returns how much of p is wanted.
func (s *stream) admit(p []byte) (piece, error) {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return piece{}, a.err
	}
	if s.skip > 0 {
		n := min(s.skip, int64(len(p)))
		s.skip -= n
		return piece{bytes: p[:n], known: true}, nil
	}
	if s.next == a.digest.SizeBytes() {
		s.state = surplus
		return piece{}, fmt.Errorf("%w: more than %d bytes came", cas.ErrCorrupt, s.next)
	}
	n := min(a.limitLocked(s)-s.next, int64(len(p)), streamPiece)
	if n <= 0 || s.state.stopped() {
		s.state = s.state.stop()
		return piece{}, errEnough
	}
	s.state = writing
	for _, o := range a.streams {
		if !o.state.came() && s.next <= o.next && o.next < s.next+n {
			o.overtakenLocked() // nothing may be written twice, so s fetches what o was for
			s.until = min(max(s.until, o.until), s.part.To)
		}
	}
	return piece{bytes: p[:n], at: s.next}, nil
}

func (s *stream) arrived(n int64) {
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.have.Add(span.Span{From: s.next, To: s.next + n})
	s.next += n
	s.state = flowing
	for _, o := range a.streams {
		o.skipLocked()
	}
	a.changeLocked()
}

// skipLocked makes a stream that fills a hole skip a small existing part, unless another stream
// continues from there.
func (s *stream) skipLocked() {
	end := s.a.have.End(s.next)
	if s.state.stopped() || s.until < s.part.To || end == s.next || end-s.next+s.skip > streamSkip || end >= s.part.To && !s.toEnd() {
		return
	}
	for _, o := range s.a.streams {
		if o.state.came() && !o.state.stopped() && o.next == end && o.next < o.part.To {
			return
		}
	}
	s.skip += end - s.next
	s.next = end
}

// ended removes s. If it ended with err or too early, the arrival fails, unless s was told to end,
// has low priority while callers wait, or was only for a predicted part, which is then fetched with
// the rest.
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
	if err == nil && s.next < s.part.To && !s.state.stopped() {
		err = fmt.Errorf("%w: only %d bytes came", cas.ErrCorrupt, s.next)
	}
	needed := s.next < a.digest.SizeBytes() && a.have.End(s.next) == s.next
	switch {
	case err == nil || s.state.stopped() || a.err != nil:
	case s.purpose == forHint || !s.toEnd():
		a.foreseen, a.unlimited = foreseen{}, true
	case s.behind() && a.needed && s.state != surplus: // waiting callers have calls of their own
	case needed || s.state == surplus:
		a.err = err
	}
	a.changeLocked()
}
