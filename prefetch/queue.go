package prefetch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/prefetch/follow"
)

// A file is a file of the input root that is likely to be read.
type file struct {
	digest digest.Digest
	hash   PathHash
	class  class
}

// A class combines when files are expected to be read, how likely, and their size. Files of one
// class are requested in the order of the tree.
type class struct {
	way way
	// Of predicted files: when they are read, and whether fewer than half of the runs read them.
	when rank
	rare bool
}

// A way says how a file is requested, and why.
type way uint8

const (
	small     way = iota // predicted; requested with others in one call
	near                 // a neighbour of an opened file; requested with others in one call
	mentioned            // mentioned by a file that was read; requested with others in one call
	large                // predicted; requested in a call of its own, because it is above largeBytes
	// A large file with parts that runs read: parts requests these like a small file, whole all of
	// it like a large file.
	parts
	whole
)

// isLarge reports whether the file is requested in a call of its own.
func (w way) isLarge() bool { return w == large || w == whole }

// isGuess reports whether the file is requested for what the action reads, not for a profile.
func (w way) isGuess() bool { return w == near || w == mentioned }

// isParted reports whether runs read only parts of the file.
func (w way) isParted() bool { return w == parts || w == whole }

// classOf returns the class of a predicted file with this size, at the path with the hash h.
func classOf(p *Profile, h PathHash, sizeBytes int64) class {
	c := class{}
	c.when, c.rare = p.foresees(h)
	if sizeBytes > largeBytes {
		c.way = large
	}
	return c
}

// longBytes is the size from which on a file takes so long that nothing is held back for it.
const longBytes = 64 << 20

// A queue holds files that no call has asked for yet, and knows what calls are asking for.
type queue struct {
	wake chan struct{} // one place
	pace *pace

	mu     sync.Mutex       // guards all that follows
	files  map[class][]file // that wait
	parts  parted
	credit *credit
	held   bool // the profile is not believed now
	now    rank // of the action's present reads
	// share is the pace's answer at the last look at the queue, with credit.window. Other races
	// change it at any time; one look uses one answer.
	share int64

	// Calls that are under way.
	smallCalls, largeCalls int
	total, largeTotal      int64           // bytes of their small files, and of their large ones
	underWay               map[class]int64 // bytes for which later files are held back
	largeUnderWay          map[PathHash]context.CancelFunc
	used                   used // by small files
}

func newQueue(o Origin, known ranges, p *pace) *queue {
	return &queue{
		wake: make(chan struct{}, 1), pace: p, credit: newCredit(o), parts: newParted(known),
		files: map[class][]file{}, underWay: map[class]int64{}, largeUnderWay: map[PathHash]context.CancelFunc{},
	}
}

// lookLocked updates the pace's answer.
func (q *queue) lookLocked() { q.credit.window, q.share = q.pace.look(q.total > 0) }

func (q *queue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// foresee adds files that the profile foresees. They replace small ones at the same paths.
func (q *queue) foresee(files []file) {
	q.mu.Lock()
	paths := make([]PathHash, len(files))
	for i, f := range files {
		paths[i] = f.hash
	}
	q.forgetLocked(paths)
	for _, f := range files {
		q.credit.foresee(f)
		if f.class.way == large && q.parts.admits(f.hash, f.digest) {
			f.class.way = whole
			q.files[f.class] = append(q.files[f.class], f)
			f.class.way = parts
		}
		q.files[f.class] = append(q.files[f.class], f)
	}
	q.mu.Unlock()
	q.rouse()
}

// forget drops predicted small files at these paths: they are not in the tree, which says nothing
// about whether others of the profile are read.
func (q *queue) forget(paths []PathHash) {
	q.mu.Lock()
	q.forgetLocked(paths)
	q.mu.Unlock()
	q.rouse()
}

func (q *queue) forgetLocked(paths []PathHash) {
	gone := map[PathHash]struct{}{}
	for _, path := range paths {
		if q.credit.forget(path) {
			gone[path] = struct{}{}
		}
	}
	if len(gone) == 0 {
		return
	}
	for c, waiting := range q.files {
		if c.way.isGuess() {
			continue
		}
		waiting = slices.DeleteFunc(waiting, func(f file) bool { _, ok := gone[f.hash]; return ok })
		if q.files[c] = waiting; len(waiting) == 0 {
			delete(q.files, c)
		}
	}
}

// unforeseen returns those files that the profile does not foresee.
func (q *queue) unforeseen(files []file) (others []file) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range files {
		if !q.credit.expects(f.hash) {
			others = append(others, f)
		}
	}
	return others
}

// near adds neighbours of files that the action has opened. So many of their bytes are in doubt
// now.
func (q *queue) near(files []file, doubt int64) {
	q.mu.Lock()
	q.credit.nearDoubt = doubt
	q.mu.Unlock()
	q.guess(files)
}

// guess adds files for what the action reads, and not for a profile.
func (q *queue) guess(files []file) {
	q.mu.Lock()
	for _, f := range files {
		q.files[f.class] = append(q.files[f.class], f)
	}
	q.lookLocked()
	_, more := q.nextLocked()
	q.mu.Unlock()
	if more {
		q.rouse()
	}
}

// dropNear drops waiting neighbours.
func (q *queue) dropNear() {
	q.mu.Lock()
	delete(q.files, class{way: near})
	q.mu.Unlock()
	q.rouse()
}

// read notes that the action reads a file that the profile has, which may let more be asked for,
// and that the action is at files of that rank now. It returns how the file was foreseen.
func (q *queue) read(h PathHash, now rank) follow.Foresight {
	q.mu.Lock()
	q.lookLocked()
	known := q.credit.read(h, q.held)
	q.now = now
	_, more := q.nextLocked() // for whatever reason: other races change the pace at any time
	q.mu.Unlock()
	if more {
		q.rouse()
	}
	return known
}

// hold sets whether the profile is distrusted for now. Then its large files, which take long, are
// cancelled.
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

// soon says how many parts of its reads an action at files of rank now reads before files of c:
// none before mentioned files and neighbours. Files that it should have read already come last.
func (c class) soon(now rank) int {
	if c.way.isGuess() {
		return -1
	}
	return int((c.when - now) & lastRank)
}

// before orders classes by how soon they are read; large or rare files count as read a part later.
// Of equal ones small files go first, then parts, then the less rare.
func (c class) before(o class, now rank) bool {
	large, rare := ordinal(c.way.isLarge()), ordinal(c.rare)
	otherLarge, otherRare := ordinal(o.way.isLarge()), ordinal(o.rare)
	return cmp.Or(
		cmp.Compare(min(c.soon(now), 0), min(o.soon(now), 0)), cmp.Compare(ordinal(c.way == near), ordinal(o.way == near)),
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

// nextLocked returns the class of the next request, false if there is none now.
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

// take returns the next request; nothing if there is none now. When the call has ended, the caller
// calls ended. If some is not nil, only these parts are requested, of a single file, and no call is
// counted.
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

// takePartsLocked takes as many parts of f, which is next, as the credit allows. The others wait
// for more trust.
func (q *queue) takePartsLocked(f file) span.Set {
	some, all := q.parts.take(f.hash, f.digest, q.credit.left())
	q.credit.ask(f, 0, some.Bytes())
	if !all {
		q.files[f.class] = append([]file{f}, q.files[f.class]...)
	}
	return some
}

// takeLargeLocked takes the first file of a class of large ones that is not too large yet.
func (q *queue) takeLargeLocked(c class) []file {
	files := q.files[c]
	i := slices.IndexFunc(files, q.credit.admitsLarge)
	if i < 0 {
		return nil
	}
	q.largeCalls++
	f := files[i]
	if q.files[c] = slices.Delete(files, i, i+1); len(files) == 1 {
		delete(q.files, c)
	}
	bytes := f.digest.SizeBytes()
	q.credit.ask(f, bytes, 0)
	q.largeTotal += bytes
	return []file{f}
}

// mayGoLocked reports whether files of a class may be asked for, if it is their turn.
func (q *queue) mayGoLocked(c class) bool {
	switch {
	case c.way == near:
		return true
	case c.way == mentioned:
		return q.total < q.share
	case q.held || q.credit.left() <= 0:
		return false
	case c.way.isLarge():
		return q.credit.left() > q.credit.largeDoubt && q.largeCalls < maxLargeCalls && q.largeTotal < max(q.share, 1) &&
			slices.ContainsFunc(q.files[c], q.credit.admitsLarge) && q.mayPassLocked(c)
	}
	return q.total < q.share && (c.way != parts || q.parts.mayGo(q.files[c][0].digest)) && q.mayPassLocked(c)
}

// mayPassLocked reports whether few bytes of files that are read before files of c are in flight.
func (q *queue) mayPassLocked(c class) bool {
	var earlier int64
	for o, bytes := range q.underWay {
		if o.soon(q.now) < c.soon(q.now) {
			earlier += bytes
		}
	}
	return earlier < max(q.share/2, 1)
}

// heldFor returns for how many bytes of a call later files are held back: for none of a file whose
// parts are requested, because these come first.
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
	n, bytes, most := 0, int64(0), q.mostPerCallLocked()
	for n < len(files) && n < filesPerCall && (n == 0 || c.way != parts && (c.way.isGuess() || q.credit.left() > 0)) {
		size := files[n].digest.SizeBytes()
		if n > 0 && bytes+size > most {
			break
		}
		n++
		bytes += size
		if c.way == small {
			q.credit.ask(files[n-1], size, 0)
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

// mostPerCallLocked is how many bytes several small files of one call have at most.
func (q *queue) mostPerCallLocked() int64 { return min(bytesPerCall, max(q.share/4, leastPerCall)) }

// carryLocked notes that so many bytes of small files more are under way.
func (q *queue) carryLocked(bytes int64) {
	was := q.total > 0
	if q.total += bytes; q.total > 0 != was {
		q.pace.turn(q.total > 0)
	}
	if bytes > 0 {
		q.used.note(q.total, q.share, q.mostPerCallLocked())
	}
}

func bytesOf(batch []file) (bytes int64) {
	for _, f := range batch {
		bytes += f.digest.SizeBytes()
	}
	return bytes
}

// usage returns how the window was used since a call was taken that has not ended.
func (q *queue) usage(since time.Time) usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used.since(since)
}

// begun records the call for a large file, which cancel ends.
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

// ended records the end of a call. A cancelled large file is requested again if the profile proves
// right.
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
		q.credit.ask(batch[0], -bytesOf(batch), 0)
	}
	q.mu.Unlock()
	q.rouse()
}
