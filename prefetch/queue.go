package prefetch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// A file is a file of the input root that is likely to be read.
type file struct {
	digest digest.Digest
	hash   PathHash
	class  class
}

// A class says what is known of when files are read, how likely, and how much they take. Files of
// one class are asked for in the order of the tree.
type class struct {
	way way
	// Of files that the profile foresees: when they are read, and whether fewer than half of the runs read them.
	when rank
	rare bool
}

// A way is how a file is asked for, and why.
type way uint8

const (
	small way = iota // the profile foresees it; with others in a call
	near             // the same, because it is next to what the action has opened
	large            // the profile foresees it; in a call of its own, because it is above largeBytes
	// Of a large file of which parts come that runs read: these, as if they were a small file, and all of it, as a large one.
	parts
	whole
)

// isLarge reports whether it is asked for in a call of its own.
func (w way) isLarge() bool { return w == large || w == whole }

// isParted reports whether it is of a file of which parts come.
func (w way) isParted() bool { return w == parts || w == whole }

// classOf returns the class of a file of that size that p foresees at the path with the hash h.
func classOf(p *Profile, h PathHash, sizeBytes int64) class {
	c := class{}
	c.when, c.rare = p.foresees(h)
	if sizeBytes > largeBytes {
		c.way = large
	}
	return c
}

// A profile is believed up to a point: of what it foresees, what the link carries in about so many round trips is asked for
// before any of it is read, and so many bytes at most.
const (
	exactTrips   = 2
	exactCredit  = 16 << 20
	coarseTrips  = 1
	coarseCredit = 4 << 20
	// For each file that is read a quarter of its bytes may be in doubt more, and what the link carries in a 16th of a round
	// trip, but no more than so many times its bytes.
	creditOfRead = 7
	// largeOfTrust is how many times what may be in doubt a large file may have.
	largeOfTrust = 8
)

// longBytes is the size from which on a file takes so long that nothing is held back for it.
const longBytes = 64 << 20

// A hope is that a file is read as the profile foresees.
type hope struct {
	bytes        int64
	asked, parts int64 // what was asked for: all of it, and parts of it
}

// A queue holds files that no call has asked for yet.
type queue struct {
	wake chan struct{} // one place

	mu    sync.Mutex
	files map[class][]file  // guarded by mu
	known map[PathHash]hope // guarded by mu; what the profile foresees and was not read
	pace  *pace
	// What the pace said when the queue was last looked at. Other races change it at any time; one look goes by one answer.
	// Guarded by mu.
	window, share int64
	// On the word of the profile files are asked for as long as doubt, the bytes of those that were and are not read yet, is less
	// than trust. The last small one may exceed that. Large ones are in doubt apart, and are to leave small ones theirs. Of trust
	// some is there from the start, and earned is the rest. Guarded by mu, but for trips and most, which say what is there.
	trips, most                          int64
	earned, doubt, largeDoubt, nearDoubt int64
	held                                 bool // guarded by mu; the profile is not believed now
	now                                  rank // guarded by mu; of what the action reads
	// Calls that are under way: how many for small and for large files, and how many bytes of small ones of each class. Guarded by mu.
	smallCalls, largeCalls int
	underWay               map[class]int64
	total                  int64 // bytes of small files that are under way
	largeTotal             int64
	largeUnderWay          map[PathHash]context.CancelFunc // what gives them up
	parts                  parted
}

func newQueue(o Origin, known ranges, p *pace) *queue {
	q := &queue{
		wake: make(chan struct{}, 1), pace: p, trips: exactTrips, most: exactCredit, parts: newParted(known),
		files: map[class][]file{}, known: map[PathHash]hope{}, underWay: map[class]int64{},
		largeUnderWay: map[PathHash]context.CancelFunc{},
	}
	if o == Coarse {
		q.trips, q.most = coarseTrips, coarseCredit
	}
	return q
}

// lookLocked has what follows go by what the pace says now.
func (q *queue) lookLocked() { q.window, q.share = q.pace.look(q.total > 0) }

// creditLocked is what may yet be asked for on the word of the profile.
func (q *queue) creditLocked() int64 { return q.trustLocked() - q.doubt - q.nearDoubt }

// trustLocked is what may be in doubt.
func (q *queue) trustLocked() int64 { return min(q.trips*q.window, q.most) + q.earned }

// askLocked notes that so many bytes of all of a file are asked for, and so many of parts of it.
func (q *queue) askLocked(f file, all, parts int64) {
	h, ok := q.known[f.hash]
	if !ok {
		return // it has been read by now
	}
	h.asked += all
	h.parts += parts
	q.known[f.hash] = h
	q.doubtLocked(h.bytes, all, parts)
}

// doubtLocked adds to what is in doubt of a file of that size.
func (q *queue) doubtLocked(size, all, parts int64) {
	q.doubt += parts
	if size > largeBytes {
		q.largeDoubt += all
	} else {
		q.doubt += all
	}
}

func (q *queue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// foresee adds files that the profile foresees.
func (q *queue) foresee(files []file) {
	q.mu.Lock()
	for _, f := range files {
		q.known[f.hash] = hope{bytes: f.digest.SizeBytes()}
		if f.class.way == large && q.parts.admits(f) {
			f.class.way = whole
			q.files[f.class] = append(q.files[f.class], f)
			f.class.way = parts
		}
		q.files[f.class] = append(q.files[f.class], f)
	}
	q.mu.Unlock()
	q.rouse()
}

// unforeseen returns those files that the profile does not foresee.
func (q *queue) unforeseen(files []file) (others []file) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range files {
		if _, ok := q.known[f.hash]; !ok {
			others = append(others, f)
		}
	}
	return others
}

// near adds files that are next to what the action has opened. Of those so many bytes are in doubt now.
func (q *queue) near(files []file, doubt int64) {
	q.mu.Lock()
	q.nearDoubt = doubt
	if len(files) > 0 {
		q.files[class{way: near}] = append(q.files[class{way: near}], files...)
	}
	q.lookLocked()
	_, more := q.nextLocked()
	q.mu.Unlock()
	if more {
		q.rouse()
	}
}

// dropNear forgets what waits because of what is near it.
func (q *queue) dropNear() {
	q.mu.Lock()
	delete(q.files, class{way: near})
	q.mu.Unlock()
	q.rouse()
}

// read notes that the action reads a file that the profile foresaw, which lets more be asked for, and that the action is at
// files of that rank now. It reports whether the file was asked for, or would have been in its turn.
func (q *queue) read(h PathHash, now rank) (inTime bool) {
	q.mu.Lock()
	q.lookLocked()
	spent := q.creditLocked() <= 0
	f, ok := q.known[h]
	if ok {
		q.earned += min(creditOfRead*f.bytes, f.bytes/4+q.window/16)
		q.doubtLocked(f.bytes, -f.asked, -f.parts)
		delete(q.known, h)
	}
	q.now = now
	inTime = f.asked > 0 || !spent && !q.held
	_, more := q.nextLocked() // for whatever reason: other races change the pace without a word
	q.mu.Unlock()
	if more {
		q.rouse()
	}
	return inTime
}

// hold says whether the profile is not to be believed for now. Then its large files, which take long, are given up.
func (q *queue) hold(held bool) {
	q.mu.Lock()
	changed := q.held != held
	q.held = held
	var giveUp []context.CancelFunc
	if changed && held {
		giveUp = slices.Collect(maps.Values(q.largeUnderWay))
	}
	q.mu.Unlock()
	for _, cancel := range giveUp {
		cancel()
	}
	if changed {
		q.rouse()
	}
}

// soon says how many parts of what it reads an action that is at files of rank now reads before files of c: none of what
// is near. What it should have read already comes last.
func (c class) soon(now rank) int {
	if c.way == near {
		return -1
	}
	return int((c.when - now) & lastRank)
}

// before orders classes by how soon they are read; what is large or rare counts as read a part later. Of what is equal
// then the small goes first, parts after it, and the less rare.
func (c class) before(o class, now rank) bool {
	large, rare := ordinal(c.way.isLarge()), ordinal(c.rare)
	otherLarge, otherRare := ordinal(o.way.isLarge()), ordinal(o.rare)
	return cmp.Or(
		cmp.Compare(c.soon(now)+large+rare, o.soon(now)+otherLarge+otherRare),
		cmp.Compare(large, otherLarge), cmp.Compare(ordinal(c.way.isParted()), ordinal(o.way.isParted())),
		cmp.Compare(rare, otherRare), cmp.Compare(c.when, o.when)) < 0
}

func ordinal(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// nextLocked returns the class of what is asked for next, false if there is nothing now.
func (q *queue) nextLocked() (next class, found bool) {
	for c := range q.files {
		if q.mayGoLocked(c) && (!found || c.before(next, q.now)) {
			next, found = c, true
		}
	}
	// No large file goes ahead of small ones that are before it.
	return next, found && (next.way.isLarge() || next.way.isParted() || q.smallCalls < maxSmallCalls)
}

// ready reports whether there is something to take now.
func (q *queue) ready() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lookLocked()
	_, ok := q.nextLocked()
	return ok
}

// take returns what the next call asks for; nothing if there is nothing now. When the call has ended, the
// caller calls ended. If some is not nil, only these parts are asked for, of a single file, and no call is counted.
func (q *queue) take() (batch []file, some span.Set) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lookLocked()
	next, ok := q.nextLocked()
	switch {
	case !ok:
		return nil, nil
	case next.way == parts:
		batch = q.takeLocked(next)
		if some = q.takePartsLocked(batch[0]); len(some) == 0 {
			return nil, nil
		}
		return batch, some
	case next.way.isLarge():
		return q.takeLargeLocked(next), nil
	}
	q.smallCalls++
	return q.takeLocked(next), nil
}

// takePartsLocked takes as many parts of f, whose turn it is, as may be asked for. The others wait for more trust.
func (q *queue) takePartsLocked(f file) span.Set {
	some, all := q.parts.take(f, q.creditLocked())
	q.askLocked(f, 0, some.Bytes())
	if !all {
		q.files[f.class] = append([]file{f}, q.files[f.class]...)
	}
	return some
}

// takeLargeLocked takes the first file of a class of large ones that is not too large yet.
func (q *queue) takeLargeLocked(c class) []file {
	files := q.files[c]
	i := slices.IndexFunc(files, q.worthLocked)
	if i < 0 {
		return nil
	}
	q.largeCalls++
	f := files[i]
	if q.files[c] = slices.Delete(files, i, i+1); len(files) == 1 {
		delete(q.files, c)
	}
	bytes := f.digest.SizeBytes()
	q.askLocked(f, bytes, 0)
	q.largeTotal += bytes
	return []file{f}
}

// worthLocked reports whether a large file is no larger than the profile is trusted for.
func (q *queue) worthLocked(f file) bool {
	return f.digest.SizeBytes() <= largeOfTrust*q.trustLocked()
}

// mayGoLocked reports whether files of a class may be asked for, if it is their turn.
func (q *queue) mayGoLocked(c class) bool {
	switch {
	case c.way == near:
		return true
	case q.held || q.creditLocked() <= 0:
		return false
	case c.way.isLarge():
		return q.creditLocked() > q.largeDoubt && q.largeCalls < maxLargeCalls && q.largeTotal < max(q.share, 1) &&
			slices.ContainsFunc(q.files[c], q.worthLocked) && q.mayPassLocked(c)
	}
	return q.total < q.share && (c.way != parts || q.parts.mayGo(q.files[c][0])) && q.mayPassLocked(c)
}

// mayPassLocked reports whether little is under way of what is read before files of c.
func (q *queue) mayPassLocked(c class) bool {
	var earlier int64
	for o, bytes := range q.underWay {
		if o.soon(q.now) < c.soon(q.now) {
			earlier += bytes
		}
	}
	return earlier < max(q.share/2, 1)
}

// heldFor returns for how many bytes of a call what is read later is held back: for none of a file of which parts come, with
// which comes what is read of it.
func heldFor(batch []file) (bytes int64) {
	for _, f := range batch {
		if size := f.digest.SizeBytes(); size < longBytes && !f.class.way.isParted() {
			bytes += size
		}
	}
	return bytes
}

// takeLocked takes files of a class of small ones that has some, or one of which parts come.
func (q *queue) takeLocked(c class) []file {
	files := q.files[c]
	n, bytes, most := 0, int64(0), min(bytesPerCall, max(q.share/4, leastPerCall))
	for n < len(files) && n < filesPerCall && (n == 0 || c.way != parts && (c.way == near || q.creditLocked() > 0)) {
		size := files[n].digest.SizeBytes()
		if n > 0 && bytes+size > most {
			break
		}
		n++
		bytes += size
		if c.way == small {
			q.askLocked(files[n-1], size, 0)
		}
	}
	if c.way != parts {
		q.underWay[c] += bytes
		q.carryLocked(bytes)
	}
	if q.files[c] = files[n:]; n == len(files) {
		delete(q.files, c)
	}
	return files[:n:n]
}

// carryLocked notes that so many bytes of small files more are under way.
func (q *queue) carryLocked(bytes int64) {
	was := q.total > 0
	if q.total += bytes; q.total > 0 != was {
		q.pace.turn(q.total > 0)
	}
}

func bytesOf(batch []file) (bytes int64) {
	for _, f := range batch {
		bytes += f.digest.SizeBytes()
	}
	return bytes
}

// full reports whether at least half of what may be is under way.
func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lookLocked()
	return 2*q.total >= q.share
}

// begun says that the call for a large file has begun, which cancel gives up.
func (q *queue) begun(batch []file, cancel context.CancelFunc) {
	q.mu.Lock()
	q.underWay[batch[0].class] += heldFor(batch)
	q.largeUnderWay[batch[0].hash] = cancel
	held := q.held
	q.mu.Unlock()
	if held {
		cancel()
	}
}

// ended says that a call has ended. A large file that was given up is asked for again if the profile proves right.
func (q *queue) ended(batch []file, givenUp bool) {
	q.mu.Lock()
	c := batch[0].class
	if q.underWay[c] -= heldFor(batch); q.underWay[c] == 0 {
		delete(q.underWay, c)
	}
	if c.way.isLarge() {
		q.largeCalls--
		q.largeTotal -= bytesOf(batch)
		delete(q.largeUnderWay, batch[0].hash)
	} else {
		q.smallCalls--
		q.carryLocked(-bytesOf(batch))
	}
	if givenUp {
		q.files[c] = append(q.files[c], batch...)
		q.askLocked(batch[0], -bytesOf(batch), 0)
	}
	q.mu.Unlock()
	q.rouse()
}
