package disk

import (
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
	"github.com/forerunner-build/forerunner/cas/holders"
)

// An index has the files of a limited folder and chooses the victims of evictions: the least
// recently used unpinned files. It does no I/O, reads no clock and takes no lock; files guards it
// with a mutex and carries out its decisions.
//
// Files cannot appear and vanish under a lock, so an entry passes through two states that only
// writers see: arriving while its file is renamed into place, and leaving while its file is
// removed. At any moment at most one caller changes the file of a key.
type index struct {
	max     int64
	entries map[digest.Digest]*entry
	// idle is the ring of present entries without pins, idle.next being the one
	// used last and idle.prev the one to evict first.
	idle entry

	present  int64 // cost of all present entries
	pinned   int64 // cost of the present entries that have pins
	reserved int64 // cost of unfinished files
	count    int64 // present entries

	generation uint64 // of the latest file
	loaded     uint64 // of the last file that existed at the start
	// faults has the keys with files that had each of the faults.
	faults [faults]damage
	// fresh reports whether a proof is valid; nil: all are.
	fresh func(proof) bool

	// left is called for each leaving entry with holders. Nil: there are no holders.
	left func(digest.Digest, *holders.Set)

	evicted     int64 // evictions since the start
	evictedCost int64
	// Keys that use found, and did not find.
	hits, misses int64
}

type entry struct {
	key   digest.Digest
	cost  int64
	pins  int32
	state state
	// stamping: the store is changing the mark of the file.
	stamping bool
	// stamped is the modification time of the file in Unix seconds, as far as known: it preserves
	// the order of use over a restart.
	stamped int64
	// generation distinguishes the file from all earlier and later ones of the key.
	generation uint64
	proof      proof
	// holders are the instance names that have a blob; nil: none, or not recorded.
	holders *holders.Set
	// settled is closed when arriving or leaving ends, and nil otherwise.
	settled    chan struct{}
	prev, next *entry // in the ring; nil outside it
}

type state uint8

const (
	absent   state = iota // no file; the entry exists because of its pins
	arriving              // its file is being renamed into place
	present               // the only state that readers see
	leaving               // its file is being removed
)

// A proof says that the bytes of a file were hashed and match its key.
type proof struct {
	mark uint64 // the mark of the file then, or, if at is 0, of the file that was found
	at   uint32 // Unix seconds, until 2106, as entries are many; 0: they were not
	// strange counts how often a verification found a change that the store did not make: bytes
	// read in between are unknown. It is not in the notes.
	strange uint16
	// doubt: the file has changed since, and has not been verified again yet.
	doubt bool
	// open: the bytes were hashed while others could write to the file, so at is 0. Its users are
	// told of a later change.
	open bool
}

// provenAt is a proof of bytes that were hashed from that time on, in a file that had that mark.
func provenAt(began time.Time, mark uint64) proof { return proof{at: uint32(began.Unix()), mark: mark} }

// A reading is the read of a whole file. It also determines the proof: bytes are not proved if
// another process could write to the file during the read.
type reading struct {
	began   time.Time
	mark    uint64
	watched tamper.Watched
}

// beginReading is called before the first byte is read from a file that is open for reading only.
func beginReading(fd uintptr) (reading, error) {
	r := reading{began: time.Now(), watched: tamper.Watch(int(fd))}
	var err error
	r.mark, err = tamper.MarkOfOpen(fd)
	return r, err
}

// proof ends the reading after the last byte, while the file is still open. If a process can write
// to the file without a change of the mark, the bytes may be right, but it is unknown for how long.
func (r reading) proof() proof {
	if !r.watched.Still() {
		return proof{mark: r.mark, open: true}
	}
	return provenAt(r.began, r.mark)
}

// age is how long ago the bytes were hashed, if they were.
func (p proof) age() time.Duration { return time.Since(time.Unix(int64(p.at), 0)) }

// ahead reports whether the clock was set back since: the time since the hash is unknown.
func (p proof) ahead() bool { return p.age() < -time.Second }

// stampEvery is how many seconds the modification time of a used file may lag.
const stampEvery = 3600

// newIndex returns an empty index with memory for that many entries.
func newIndex(maxCost int64, entries int) *index {
	x := &index{max: maxCost, entries: make(map[digest.Digest]*entry, entries)}
	x.idle.prev, x.idle.next = &x.idle, &x.idle
	return x
}

func (x *index) lookup(k digest.Digest) *entry {
	if e := x.entries[k]; e != nil && e.state == present {
		return e
	}
	return nil
}

// use marks k as used now. stamp asks the caller to set the file's modification
// time.
func (x *index) use(k digest.Digest, now int64) (hit, stamp bool) {
	e := x.lookup(k)
	if e == nil {
		x.misses++
		return false, false
	}
	x.hits++
	if e.pins == 0 {
		x.unlink(e)
		x.link(e)
	}
	if now-e.stamped < stampEvery {
		return true, false
	}
	e.stamped = now
	return true, true
}

// pin keeps k from being evicted until unpin is called as often as pin returned
// true.
func (x *index) pin(k digest.Digest) bool {
	e := x.lookup(k)
	if e == nil {
		return false
	}
	if e.pins == 0 {
		x.unlink(e)
		x.pinned += e.cost
	}
	e.pins++
	return true
}

// unpin takes one pin back, which counts as a use.
func (x *index) unpin(k digest.Digest) {
	e := x.entries[k]
	if e == nil || e.pins == 0 {
		panic("cas: unpin without a pin")
	}
	if e.pins--; e.pins > 0 {
		return
	}
	switch e.state {
	case present:
		x.pinned -= e.cost
		x.link(e)
	case absent:
		delete(x.entries, k)
	}
}

// reserve reserves cost for a new file. The caller removes the files of the victims and calls gone
// for each, then finish or release. Without ok nothing has changed: there is not enough space.
func (x *index) reserve(cost int64) (victims []digest.Digest, ok bool) {
	// Two subtractions, because cost comes from clients and may be near the maximum.
	over := cost - (x.max - x.present - x.reserved)
	if cost > x.max || over > x.present-x.pinned {
		return nil, false
	}
	victims = x.evict(over)
	x.reserved += cost
	return victims, true
}

// release releases a reservation of reserve.
func (x *index) release(cost int64) { x.reserved -= cost }

// evict makes entries leave until their cost is at least the given one or none
// is left that may go. The caller removes their files and calls gone for each.
func (x *index) evict(cost int64) (victims []digest.Digest) {
	for cost > 0 && x.idle.prev != &x.idle {
		e := x.idle.prev
		cost -= e.cost
		x.evicted++
		x.evictedCost += e.cost
		victims = append(victims, e.key)
		x.leave(e)
	}
	return victims
}

// drop makes k leave although it may have pins, for its file turned out to be
// damaged. After true the caller removes the file and calls gone.
func (x *index) drop(k digest.Digest) bool {
	e := x.lookup(k)
	if e == nil {
		return false
	}
	x.leave(e)
	x.faults[damaged].add(k)
	return true
}

// noteStrange records that others have changed the file of e since its mark was recorded.
func (x *index) noteStrange(e *entry) {
	e.proof.strange++
	x.faults[strange].add(e.key)
	x.faults[unproven].add(e.key) // for readers that have not reported yet
}

// prove records the result for the file of e.
func (x *index) prove(e *entry, p proof) {
	if e.proof.mark != p.mark && e.proof.mark != 0 && !e.stamping {
		x.noteStrange(e)
	}
	p.strange = e.proof.strange
	e.proof = p
}

func (x *index) leave(e *entry) {
	if e.pins > 0 {
		x.pinned -= e.cost
	} else {
		x.unlink(e)
	}
	x.present -= e.cost
	x.count--
	if x.fresh != nil && !x.fresh(e.proof) {
		x.faults[unproven].add(e.key)
		if e.proof.at == 0 && e.generation > x.loaded {
			x.faults[unhashed].add(e.key)
		}
	}
	e.state, e.settled = leaving, make(chan struct{})
	if e.holders != nil {
		x.left(e.key, e.holders)
		e.holders = nil
	}
}

// gone ends the leaving of k.
func (x *index) gone(k digest.Digest) { x.settleAbsent(x.entries[k]) }

// admit permits the caller to add the file of k. If another caller is changing it now, wait is a
// channel to wait on before the next attempt; if it exists already, exists is true; otherwise the
// caller moves the file into place and then calls finish or abort.
func (x *index) admit(k digest.Digest) (wait <-chan struct{}, exists bool) {
	e := x.entries[k]
	if e == nil {
		e = &entry{key: k}
		x.entries[k] = e
	}
	switch e.state {
	case present:
		return nil, true
	case arriving, leaving:
		return e.settled, false
	}
	e.state, e.settled = arriving, make(chan struct{})
	return nil, false
}

// finish ends the arrival of k, whose cost was reserved.
func (x *index) finish(k digest.Digest, cost, now int64) {
	e := x.entries[k]
	close(e.settled)
	e.state, e.settled, e.cost, e.stamped = present, nil, cost, now
	x.generation++
	e.generation, e.proof = x.generation, proof{}
	x.reserved -= cost
	x.present += cost
	x.count++
	if e.pins > 0 {
		x.pinned += cost
	} else {
		x.link(e)
	}
}

// abort ends the arrival of k without a file. The reservation stays.
func (x *index) abort(k digest.Digest) { x.settleAbsent(x.entries[k]) }

func (x *index) settleAbsent(e *entry) {
	close(e.settled)
	e.state, e.settled = absent, nil
	if e.pins == 0 {
		delete(x.entries, e.key)
	}
}

// load adds a file from disk as the most recently used one, regardless of the limit.
func (x *index) load(k digest.Digest, cost, stamped int64) {
	x.generation++
	x.loaded = x.generation
	e := &entry{key: k, cost: cost, state: present, stamped: stamped, generation: x.generation}
	x.entries[k] = e
	x.present += cost
	x.count++
	x.link(e)
}

func (x *index) link(e *entry) {
	e.prev, e.next = &x.idle, x.idle.next
	e.prev.next, e.next.prev = e, e
}

func (x *index) unlink(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}
