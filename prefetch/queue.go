package prefetch

import (
	"cmp"
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
	near  bool // next to what the action has opened; what follows is of files that the profile foresees
	when  rank
	rare  bool // fewer than half of the runs read it
	large bool // above largeBytes: fetched in a call of its own
	// parted: of which parts come that runs read. They are asked for as if they were a small file, and all of it as a large one.
	parted bool
}

// A profile is believed up to a point: of what it foresees, so many bytes are asked for before any
// of it is read, and for each byte that is read so many more.
const (
	exactCredit  = 16 << 20
	coarseCredit = 4 << 20
	creditOfRead = 8
)

// earlierBytes is how much may be under way of what is read earlier, so that something is asked for that is read
// later: all calls share a link, and 1 Gbit/s carries so much in 67 ms.
const earlierBytes = 8 << 20

// longBytes is the size from which on a file takes so long that nothing is held back for it.
const longBytes = 64 << 20

// A queue holds files that no call has asked for yet.
type queue struct {
	wake chan struct{} // one place

	mu    sync.Mutex
	files map[class][]file   // guarded by mu
	known map[PathHash]int64 // guarded by mu; what the profile foresees and was not read, and its bytes
	// credit is what may yet be asked for of small files and parts on the word of the profile, in bytes; the last small
	// file may exceed it. Of large files less may be: what was asked for of them is taken off, so they leave small ones
	// theirs. Guarded by mu.
	credit, large int64
	held          bool // guarded by mu; the profile is not believed now
	now           rank // guarded by mu; of what the action reads
	// Calls that are under way: how many for small and for large files, and how many bytes of small ones of each class. Guarded by mu.
	smallCalls, largeCalls int
	underWay               map[class]int64
	parts                  parted
}

func newQueue(o Origin, known ranges) *queue {
	q := &queue{
		wake: make(chan struct{}, 1), credit: exactCredit, parts: newParted(known),
		files: map[class][]file{}, known: map[PathHash]int64{}, underWay: map[class]int64{},
	}
	if o == Coarse {
		q.credit = coarseCredit
	}
	return q
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
		q.known[f.hash] = f.digest.SizeBytes()
		if f.class.large && q.parts.admits(f) {
			f.class.parted = true
			q.files[f.class] = append(q.files[f.class], f)
			f.class.large = false
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

// near adds files that are next to what the action has opened.
func (q *queue) near(files []file) {
	q.mu.Lock()
	q.files[class{near: true}] = append(q.files[class{near: true}], files...)
	q.mu.Unlock()
	q.rouse()
}

// dropNear forgets what waits because of what is near it.
func (q *queue) dropNear() {
	q.mu.Lock()
	delete(q.files, class{near: true})
	q.mu.Unlock()
	q.rouse()
}

// read notes that the action reads a file that the profile foresaw, which lets more be asked for, and
// that the action is at files of that rank now.
func (q *queue) read(h PathHash, now rank) {
	q.mu.Lock()
	was := q.credit
	q.credit += creditOfRead * q.known[h]
	delete(q.known, h)
	changed := q.now != now || was <= 0 && q.credit > 0
	q.now = now
	q.mu.Unlock()
	if changed {
		q.rouse()
	}
}

// hold says whether the profile is not to be believed for now.
func (q *queue) hold(held bool) {
	q.mu.Lock()
	changed := q.held != held
	q.held = held
	q.mu.Unlock()
	if changed {
		q.rouse()
	}
}

// soon says how many parts of what it reads an action that is at files of rank now reads before files of c: none of what
// is near. What it should have read already comes last.
func (c class) soon(now rank) int {
	if c.near {
		return -1
	}
	return int((c.when - now) & lastRank)
}

// before orders classes by how soon they are read; what is large or rare counts as read a part later. Of what is equal
// then the small goes first, parts after it, and the less rare.
func (c class) before(o class, now rank) bool {
	large, rare := ordinal(c.large), ordinal(c.rare)
	otherLarge, otherRare := ordinal(o.large), ordinal(o.rare)
	return cmp.Or(
		cmp.Compare(c.soon(now)+large+rare, o.soon(now)+otherLarge+otherRare),
		cmp.Compare(large, otherLarge), cmp.Compare(ordinal(c.parted), ordinal(o.parted)), cmp.Compare(rare, otherRare), cmp.Compare(c.when, o.when)) < 0
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
	return next, found && (next.large || next.parted || q.smallCalls < maxSmallCalls)
}

// ready reports whether there is something to take now.
func (q *queue) ready() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.nextLocked()
	return ok
}

// take returns what the next call asks for; nothing if there is nothing now. When the call has ended, the
// caller calls ended. If parts is not nil, only these are asked for, of a single file, and no call is counted.
func (q *queue) take() (batch []file, parts span.Set) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next, ok := q.nextLocked()
	switch {
	case !ok:
		return nil, nil
	case next.parted && !next.large:
		batch = q.takeLocked(next)
		parts = q.parts.take(batch[0], q.credit)
		q.credit -= parts.Bytes()
		return batch, parts
	case next.large:
		q.largeCalls++
	default:
		q.smallCalls++
	}
	return q.takeLocked(next), nil
}

// mayGoLocked reports whether files of a class may be asked for, if it is their turn.
func (q *queue) mayGoLocked(c class) bool {
	if c.near {
		return true
	}
	var earlier int64
	for o, bytes := range q.underWay {
		if o.soon(q.now) < c.soon(q.now) {
			earlier += bytes
		}
	}
	switch {
	case q.held || q.credit <= 0 || earlier >= earlierBytes:
		return false
	case c.large:
		return q.credit > q.large && q.largeCalls < maxLargeCalls
	}
	return !c.parted || q.parts.left > 0
}

// heldFor returns for how many bytes of a call what is read later is held back: for none of a file of which parts come, with
// which comes what is read of it.
func heldFor(batch []file) (bytes int64) {
	for _, f := range batch {
		if size := f.digest.SizeBytes(); size < longBytes && !f.class.parted {
			bytes += size
		}
	}
	return bytes
}

// takeLocked takes files of a class that has some.
func (q *queue) takeLocked(c class) []file {
	files := q.files[c]
	n, bytes := 0, int64(0)
	for n < len(files) && n < filesPerCall && (n == 0 || !c.large && !c.parted && (c.near || q.credit > 0)) {
		size := files[n].digest.SizeBytes()
		if n > 0 && bytes+size > bytesPerCall {
			break
		}
		n++
		bytes += size
		switch {
		case c.large:
			q.large += size
		case !c.near && !c.parted:
			q.credit -= size
		}
	}
	if !c.large {
		q.underWay[c] += heldFor(files[:n])
	}
	if q.files[c] = files[n:]; n == len(files) {
		delete(q.files, c)
	}
	return files[:n:n]
}

// begun says that the call for a large file has begun.
func (q *queue) begun(batch []file) {
	q.mu.Lock()
	q.underWay[batch[0].class] += heldFor(batch)
	q.mu.Unlock()
}

// ended says that a call has ended.
func (q *queue) ended(batch []file) {
	q.mu.Lock()
	c := batch[0].class
	q.underWay[c] -= heldFor(batch)
	if c.large {
		q.largeCalls--
	} else {
		q.smallCalls--
	}
	q.mu.Unlock()
	q.rouse()
}
