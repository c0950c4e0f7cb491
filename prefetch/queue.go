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

// A profile has limited credit: before any predicted file is read, as many bytes are requested as
// the link carries in about so many round trips, and at most so many bytes.
const (
	exactTrips   = 2
	exactCredit  = 16 << 20
	coarseTrips  = 1
	coarseCredit = 4 << 20
	// For each file that is read, the credit grows by a quarter of its bytes, and by as many as the
	// link carries in a 16th of a round trip, but by no more than so many times its bytes. From
	// quickCredit on, it grows by half of the bytes at most, and of a large file by less: a profile
	// that has everything would earn as fast as one that is right.
	creditOfRead = 7
	quickCredit  = 8 << 20
	// For each file that the profile has, and that the action opens before there is credit to request
	// it, there is more up to quickCredit: as much as the link carries in a delayedShare of a round
	// trip. That does not help if there are manyDelays among the latest files, and more of them than
	// files that were requested.
	delayedShare = 4
	manyDelays   = 8
	delayWindow  = 32 // files that count; then they count half
	// Large files may have as many bytes in doubt as the action has read of predicted files, and as
	// the link carries in about so many round trips.
	largeTrips = 8
)

// longBytes is the size from which on a file takes so long that nothing is held back for it.
const longBytes = 64 << 20

// A hope is that a file is read as the profile foresees.
type hope struct {
	bytes        int64
	asked, parts int64 // requested bytes: whole, and in parts
}

// A queue holds files that no call has asked for yet.
type queue struct {
	wake chan struct{} // one place

	mu    sync.Mutex
	files map[class][]file  // guarded by mu
	known map[PathHash]hope // guarded by mu; predicted and unread files
	// over are predicted files that were read; the tree may show some of them only later. At most
	// maxFiles. Guarded by mu.
	over map[PathHash]struct{}
	pace *pace
	// The pace's answer at the last look at the queue. Other races change it at any time; one look
	// uses one answer. Guarded by mu.
	window, share int64
	// Predicted files are requested as long as doubt, the bytes of requested but unread ones, is
	// less than trust. The last small one may exceed that. Large ones have their own doubt, and
	// must leave small ones their credit. Part of trust is there from the start, and earned is the
	// rest, by reads of so many bytes of predicted files. Guarded by mu, except trips and most,
	// which define the start.
	trips, most                                 int64
	right, earned, doubt, largeDoubt, nearDoubt int64
	// Of the predicted files that the action opened lately: those for which there was credit in
	// time, and the others. Guarded by mu.
	prompt, delayed int
	held            bool // guarded by mu; the profile is not believed now
	now             rank // guarded by mu; of the action's present reads
	// Calls that are under way: how many for small and for large files, and how many bytes of small
	// ones of each class. Guarded by mu.
	smallCalls, largeCalls int
	underWay               map[class]int64
	total                  int64 // bytes of small files that are under way
	used                   used  // guarded by mu; by small files
	largeTotal             int64
	largeUnderWay          map[PathHash]context.CancelFunc // cancel them
	parts                  parted
}

func newQueue(o Origin, known ranges, p *pace) *queue {
	q := &queue{
		wake: make(chan struct{}, 1), pace: p, trips: exactTrips, most: exactCredit, parts: newParted(known),
		files: map[class][]file{}, known: map[PathHash]hope{}, over: map[PathHash]struct{}{}, underWay: map[class]int64{},
		largeUnderWay: map[PathHash]context.CancelFunc{},
	}
	if o == Coarse {
		q.trips, q.most = coarseTrips, coarseCredit
	}
	return q
}

// lookLocked updates the pace's answer.
func (q *queue) lookLocked() { q.window, q.share = q.pace.look(q.total > 0) }

// creditLocked is how many predicted bytes may still be requested. Neighbours, which the profile is
// not to blame for, take half of their bytes from it.
func (q *queue) creditLocked() int64 { return q.trustLocked() - q.doubt - q.nearDoubt/2 }

// trustLocked is how many bytes may be in doubt.
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

// doubtLocked adds to the doubt of a file of that size.
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

// foresee adds files that the profile foresees. They replace small ones at the same paths.
func (q *queue) foresee(files []file) {
	q.mu.Lock()
	paths := make([]PathHash, len(files))
	for i, f := range files {
		paths[i] = f.hash
	}
	q.forgetLocked(paths)
	for _, f := range files {
		if _, over := q.over[f.hash]; !over { // else it would be in doubt for ever
			q.known[f.hash] = hope{bytes: f.digest.SizeBytes()}
		}
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
		if h, ok := q.known[path]; ok {
			q.doubtLocked(h.bytes, -h.asked, -h.parts)
			delete(q.known, path)
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
		if _, ok := q.known[f.hash]; !ok {
			others = append(others, f)
		}
	}
	return others
}

// near adds neighbours of files that the action has opened. So many of their bytes are in doubt
// now.
func (q *queue) near(files []file, doubt int64) {
	q.mu.Lock()
	q.nearDoubt = doubt
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

// read notes that the action reads a file that the profile foresaw, which lets more be asked for,
// and that the action is at files of that rank now. If only credit was lacking there is more then,
// and neighbours would take it. If that has not helped with most of the latest files, the profile
// counts as lacking this one: it has too much else, or another order.
func (q *queue) read(h PathHash, now rank) follow.Foresight {
	q.mu.Lock()
	q.lookLocked()
	spent := q.creditLocked() <= 0
	f, ok := q.known[h]
	if ok {
		q.right += f.bytes
		q.earnLocked(f.bytes)
		q.doubtLocked(f.bytes, -f.asked, -f.parts)
		delete(q.known, h)
	}
	if len(q.over) < maxFiles {
		q.over[h] = struct{}{}
	}
	isDelayed := spent && f.asked == 0 // it may not have been asked for, for lack of credit
	known := q.judgeLocked(isDelayed)
	switch {
	case f.asked > 0:
		known = follow.Foreseen
	case q.held:
		known = follow.Lacked
	case ok && isDelayed && q.earned < quickCredit:
		q.earned += q.window / delayedShare
	}
	q.now = now
	_, more := q.nextLocked() // for whatever reason: other races change the pace at any time
	q.mu.Unlock()
	if more {
		q.rouse()
	}
	return known
}

// judgeLocked notes whether a file that the profile has was delayed, and returns how it was foreseen.
func (q *queue) judgeLocked(isDelayed bool) follow.Foresight {
	if q.prompt+q.delayed >= delayWindow {
		q.prompt, q.delayed = q.prompt/2, q.delayed/2
	}
	if !isDelayed {
		q.prompt++
		return follow.Foreseen
	}
	q.delayed++
	if q.earned >= quickCredit || q.delayed >= manyDelays && q.delayed > q.prompt {
		return follow.Lacked
	}
	return follow.Delayed
}

// earnLocked adds to the credit what the read of a predicted file of that size earns.
func (q *queue) earnLocked(size int64) {
	more := min(creditOfRead*size, size/4+q.window/16)
	if q.earned >= quickCredit {
		more = min(more, size/2, largeBytes/2)
	}
	q.earned += more
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

// worthLocked reports whether a large file may be requested: it may be in vain, and meanwhile it
// shares the link with calls that somebody waits for.
func (q *queue) worthLocked(f file) bool {
	return q.largeDoubt+f.digest.SizeBytes() <= q.right+largeTrips*min(q.window, q.most)
}

// mayGoLocked reports whether files of a class may be asked for, if it is their turn.
func (q *queue) mayGoLocked(c class) bool {
	switch {
	case c.way == near:
		return true
	case c.way == mentioned:
		return q.total < q.share
	case q.held || q.creditLocked() <= 0:
		return false
	case c.way.isLarge():
		return q.creditLocked() > q.largeDoubt && q.largeCalls < maxLargeCalls && q.largeTotal < max(q.share, 1) &&
			slices.ContainsFunc(q.files[c], q.worthLocked) && q.mayPassLocked(c)
	}
	return q.total < q.share && (c.way != parts || q.parts.mayGo(q.files[c][0])) && q.mayPassLocked(c)
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
	for n < len(files) && n < filesPerCall && (n == 0 || c.way != parts && (c.way.isGuess() || q.creditLocked() > 0)) {
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
		q.askLocked(batch[0], -bytesOf(batch), 0)
	}
	q.mu.Unlock()
	q.rouse()
}
