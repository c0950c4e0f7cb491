package disk

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"sync"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A ledger is an index with its lock: the contents of a folder, for all concurrent callers. It only
// decides. It does no I/O, so its lock is never held during any; files carries out its decisions.
type ledger struct {
	mu     sync.Mutex
	index  *index // guarded by mu
	closed bool   // guarded by mu
	proved bool   // guarded by mu; proofs have changed since this was set to false
	// verifying has the keys with files that are being verified; guarded by mu.
	verifying map[digest.Digest]*verification
}

// A verification is of one file, by some readers at the same time.
type verification struct {
	readers int
	// The store itself has changed the file's mark from one to the other during this time; 0: it
	// has not.
	from, to uint64
}

// verify says that the caller takes the mark of the file of k and reads it, to prove it before the
// call of endVerify.
func (l *ledger) verify(k digest.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.verifying == nil {
		l.verifying = map[digest.Digest]*verification{}
	}
	v := l.verifying[k]
	if v == nil {
		v = &verification{}
		l.verifying[k] = v
	}
	v.readers++
}

// endVerify ends this.
func (l *ledger) endVerify(k digest.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.verifying[k]
	if v.readers--; v.readers == 0 {
		delete(l.verifying, k)
	}
}

// end makes all later lookups fail. It reports whether this is the first call.
func (l *ledger) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.closed
	l.closed = true
	return !was
}

// contains reports whether k exists. It does not count as a use.
func (l *ledger) contains(k digest.Digest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed && l.index.lookup(k) != nil
}

// touch counts as a use of each of ks at that time, in Unix seconds. It returns the missing ones,
// and those whose files should be stamped with the time.
func (l *ledger) touch(ks []digest.Digest, now int64) (missing, stamps []digest.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range ks {
		var hit, stamp bool
		if !l.closed {
			hit, stamp = l.index.use(k, now)
		}
		if !hit {
			missing = append(missing, k)
		}
		if stamp {
			l.index.entries[k].stamping = true
			stamps = append(stamps, k)
		}
	}
	return missing, stamps
}

// touchAndPin is touch of a single key, which it also pins unless it is missing.
func (l *ledger) touchAndPin(k digest.Digest, now int64) (pinned, stamp bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, false
	}
	if _, stamp = l.index.use(k, now); stamp {
		l.index.entries[k].stamping = true
	}
	return l.index.pin(k), stamp
}

// look returns the generation and the proof of the file of k. Unlike a pin it does not count as a
// use: a walk over all files leaves their order unchanged, and prevents no eviction.
func (l *ledger) look(k digest.Digest) (generation uint64, p proof, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.index.lookup(k)
	if l.closed || e == nil {
		return 0, proof{}, false
	}
	return e.generation, e.proof, true
}

// holds returns the number of files, and their cost.
func (l *ledger) holds() (count, cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index.count, l.index.present
}

// pin keeps k from being evicted until unpin is called as often.
func (l *ledger) pin(k digest.Digest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed && l.index.pin(k)
}

// pinFile pins k and returns the generation of its file.
func (l *ledger) pinFile(k digest.Digest) (generation uint64, ok bool) {
	generation, _, ok = l.pinProof(k)
	return generation, ok
}

// pinProof pins k and returns the generation and the proof of its file.
func (l *ledger) pinProof(k digest.Digest) (generation uint64, p proof, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.index.pin(k) {
		return 0, proof{}, false
	}
	e := l.index.entries[k]
	return e.generation, e.proof, true
}

func (l *ledger) unpin(k digest.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index.unpin(k)
}

// has reports whether the file of k is the one of that generation.
func (l *ledger) has(k digest.Digest, generation uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.index.lookup(k)
	return e != nil && e.generation == generation
}

// prove records the proof of the file of k, if it is still the one of that generation.
func (l *ledger) prove(k digest.Digest, generation uint64, p proof) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.verifying[k]; v != nil && v.from == p.mark {
		p.mark = v.to // the store's own change
	}
	if e := l.index.lookup(k); e != nil && e.generation == generation {
		l.index.prove(e, p)
		l.proved = true
	}
}

// notice records that a caller, before its use of the file of k, found an unknown mark: others have
// changed the file before. It is called between verify and endVerify, with a mark that was read
// there.
func (l *ledger) notice(k digest.Digest, generation, mark uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.verifying[k]; v != nil && v.from == mark {
		mark = v.to // the store's own change
	}
	e := l.index.lookup(k)
	if e == nil || e.generation != generation || e.stamping || e.proof.mark == mark {
		return
	}
	e.proof.mark, e.proof.doubt = mark, true
	l.index.noteStrange(e)
	l.proved = true
}

// proveRead records the proof from a read of the file of k, if the file has that generation and the
// known mark. Otherwise it reports that the caller must check which file that was. A known proof
// that is at most again seconds older stays.
func (l *ledger) proveRead(k digest.Digest, generation uint64, p proof, again int64) (other bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.index.lookup(k)
	if e == nil || e.generation != generation {
		return false
	}
	if e.proof.mark != p.mark {
		return true
	}
	if int64(p.at)-int64(e.proof.at) > again || e.proof.ahead() || e.proof.doubt {
		l.index.prove(e, p)
		l.proved = true
	}
	return false
}

// restamped says that the store has finished its change of the file of k, whose mark was before and
// is after; 0: it is unknown.
func (l *ledger) restamped(k digest.Digest, before, after uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.index.entries[k] // it may have left in the meantime
	if e == nil {
		return
	}
	e.stamping = false
	if v := l.verifying[k]; v != nil && after != 0 {
		if v.to != before {
			v.from = before
		}
		v.to = after
	}
	if after != 0 && e.proof.mark == before {
		e.proof.mark, l.proved = after, true
	}
}

// believe adopts the notes about existing files that have not been verified since. It returns their
// number. A file that has changed since its note is doubtful. No caller has used it since, so every
// use reads its present bytes.
func (l *ledger) believe(notes []proven) (count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range notes {
		e := l.index.lookup(n.key)
		if e == nil || e.proof.at != 0 || e.proof.open {
			continue
		}
		switch {
		case e.proof.mark != n.proof.mark:
			e.proof.doubt, l.proved = true, true
		case n.proof.at != 0:
			e.proof.at = n.proof.at
			count++
		}
	}
	return count
}

// haveProved reports whether proofs have changed since it was called last, unless the ledger has
// ended.
func (l *ledger) haveProved() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := l.proved && !l.closed
	l.proved = false
	return changed
}

// noteLater makes haveProved report again.
func (l *ledger) noteLater() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proved = true
}

// proven is a file that was verified.
type proven struct {
	key   digest.Digest
	proof proof
}

// proofs yields the proofs of all files that were verified, or are doubtful, like walk.
func (l *ledger) proofs(n int) iter.Seq[[]proven] {
	return walk(l, n, func(e *entry) (proven, bool) {
		return proven{e.key, e.proof}, e.proof.at != 0 || e.proof.doubt
	})
}

// walk yields the results of pick for the entries of l that it accepts, of up to n entries at a
// time. The lock is held for so many and not while they are yielded. Entries that are added or
// removed during the walk may be missing. The next step overwrites the slice.
func walk[T any](l *ledger, n int, pick func(*entry) (T, bool)) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		chunk, looked := make([]T, 0, n), 0
		l.mu.Lock()
		for _, e := range l.index.entries {
			if one, wanted := pick(e); wanted {
				chunk = append(chunk, one)
			}
			if looked++; looked%n != 0 {
				continue
			}
			// A map may change while it is walked, if not at the same time.
			l.mu.Unlock()
			if !yield(chunk) {
				return
			}
			chunk = chunk[:0]
			l.mu.Lock()
		}
		l.mu.Unlock()
		yield(chunk)
	}
}

// noteDamage notes that files of ks were damaged, which are none of the index's.
func (l *ledger) noteDamage(ks []digest.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range ks {
		l.index.faults[damaged].add(k)
	}
}

// count returns how often that has happened since the start.
func (l *ledger) count(f fault) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index.faults[f].count
}

// since returns the keys in ks that had a file with this fault after the first count such files.
func (l *ledger) since(f fault, ks []digest.Digest, count uint64) []digest.Digest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index.faults[f].among(ks, count)
}

// leave makes k leave if its damaged file is still the one of that generation. After true the
// caller removes the file and calls gone.
func (l *ledger) leave(k digest.Digest, generation uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.index.lookup(k)
	return e != nil && e.generation == generation && l.index.drop(k)
}

// leaving returns the proof of the file of k, which is leaving, and whether the store changes it.
func (l *ledger) leaving(k digest.Digest) (p proof, stamping bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.index.entries[k]
	return e.proof, e.stamping
}

// gone says that the leaving file of k is no longer in its place.
func (l *ledger) gone(k digest.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index.gone(k)
}

// left waits until k is not leaving any more, and reports whether it was.
func (l *ledger) left(ctx context.Context, k digest.Digest) (bool, error) {
	l.mu.Lock()
	var settled <-chan struct{}
	if e := l.index.entries[k]; e != nil && e.state == leaving {
		settled = e.settled
	}
	l.mu.Unlock()
	if settled == nil {
		return false, nil
	}
	select {
	case <-settled:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// fits returns why a file of that cost can never be stored.
func (l *ledger) fits(cost int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cost > l.index.max {
		return &cas.NeverFitsError{MaxBytes: l.index.max}
	}
	return nil
}

// claim reserves cost for a file, or a part of one, once the caller has removed the victims.
// admitted, or release, ends the reservation.
func (l *ledger) claim(cost int64) (victims []digest.Digest, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fs.ErrClosed
	}
	victims, ok := l.index.reserve(cost)
	if !ok {
		err = fmt.Errorf("%w: %d wanted, of %d are %d in use and %d being written",
			cas.ErrNoSpace, cost, l.index.max, l.index.pinned, l.index.reserved)
	}
	return victims, err
}

// release releases a reservation of claim.
func (l *ledger) release(cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index.release(cost)
}

// evict makes files of that total cost leave, as far as there are unpinned ones, or share of all if
// that is more; 0 is none. The caller removes them. made is their cost.
func (l *ledger) evict(cost, share int64) (victims []digest.Digest, made int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if share > 0 {
		cost = max(cost, l.index.present/share)
	}
	before := l.index.evictedCost
	victims = l.index.evict(cost)
	return victims, l.index.evictedCost - before
}

// bound sets the bound. The caller removes the victims.
func (l *ledger) bound(maxCost int64) (victims []digest.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index.max = maxCost
	return l.index.evict(l.index.present - maxCost)
}

// admit permits the caller to add the file of k, like index.admit, or pins the existing one.
func (l *ledger) admit(k digest.Digest) (wait <-chan struct{}, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait, exists = l.index.admit(k)
	if exists {
		l.index.pin(k)
	}
	return wait, exists
}

// admitted says that the file of k, whose cost was claimed, is in its place, and pins it.
func (l *ledger) admitted(k digest.Digest, cost, now int64, p proof) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index.finish(k, cost, now)
	l.index.entries[k].proof, l.proved = p, true
	l.index.pin(k)
}

// abort says that the admitted file of k will not arrive.
func (l *ledger) abort(k digest.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index.abort(k)
}
