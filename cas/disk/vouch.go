package disk

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A Vouching verifies the blobs that one reader, such as an action, used. Its methods may be called
// concurrently. The caller ends it with Close.
//
// A blob is verified if this program has hashed its bytes since the machine started, not longer ago
// than Options.VerifyEvery, and the kernel has seen no change of its file from then until Wait.
// This does not cover changes of bytes after that without the kernel's knowledge: a disk that
// returns wrong bytes later (for pages that the page cache no longer holds), bit flips in memory, a
// write to the block device; nor a write to the file within the same tick of the kernel's clock as
// the verification, on a file system with coarse times.
type Vouching struct {
	by    *Verifier
	began uint64 // how many damaged files there had been
	// For blobs that the reader may have read before Read reports them: the earlier numbers of
	// damaged files, and of unverified files that were removed.
	former, left uint64

	mu     sync.Mutex
	used   map[version]use // guarded by mu
	order  []version       // guarded by mu; of used
	pinned []digest.Digest // guarded by mu; with VerifyEvery less than 0
	read   []digest.Digest // guarded by mu; blobs that may have left between their read and their report
	closed bool            // guarded by mu
}

// A use is a version that the reader used.
type use struct {
	check   *check // of stale ones, otherwise nil
	strange uint16 // how often others had changed its file
	before  uint64 // how often all files had been
	left    uint64 // how many files had left early (Verifier.early)
}

// Next begins another Vouching of the same reader. Blobs that were read since v began, but are
// reported from now on, belong to the new one.
func (v *Vouching) Next() *Vouching {
	next := v.by.Vouch()
	next.former, next.left = v.former, v.left
	return next
}

// Read reports that the reader has read some of d since v began, without a call of Used before.
// Unlike with Used, d may have been evicted or replaced since: if it was damaged, or unverified
// when it was evicted, it counts as damaged.
func (v *Vouching) Read(d digest.Digest) {
	v.use(d)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.read = append(v.read, d)
}

// Used reports that the reader is about to read some of d. It reads only the attributes of the
// file: earlier changes by others do not count. If the last verification is older than
// Options.VerifyEvery, d is verified in the background, and not evicted before. Call it before the
// blob is opened or while it is pinned: a blob that is evicted earlier cannot be verified any more;
// Read handles that. A missing blob counts as on its way, and is verified when it has arrived.
func (v *Vouching) Used(d digest.Digest) {
	v.by.notice(d)
	v.use(d)
}

// use notes a use, before or after the reading.
func (v *Vouching) use(d digest.Digest) {
	by := v.by
	before, left := by.files.count(strange), by.files.count(by.early())
	generation, known, present := by.files.pinProof(d) // the empty blob never is
	ver := version{d, generation}
	fresh := by.fresh(known)
	v.mu.Lock()
	_, again := v.used[ver]
	wanted := present && !fresh && !again && !v.closed
	if !again && !v.closed {
		v.used[ver] = use{strange: known.strange, before: before, left: left}
		v.order = append(v.order, ver)
		if wanted && by.every < 0 {
			v.pinned = append(v.pinned, d)
		}
	}
	v.mu.Unlock()
	switch {
	case !present:
	case !wanted:
		by.files.unpin(d)
	case by.every >= 0:
		v.check(ver, known)
	}
}

// check verifies ver, which is pinned and has this proof, in the background.
func (v *Vouching) check(ver version, known proof) {
	c := v.by.ask(ver, known)
	if c == nil {
		return
	}
	v.mu.Lock()
	u := v.used[ver]
	u.check = c
	v.used[ver] = u
	closed := v.closed
	v.mu.Unlock()
	if closed {
		v.by.checks.leave(c)
		return
	}
	v.by.checks.queueUp(c)
}

// Wait verifies the remaining used blobs. Nil means that all of them are verified. The error is a
// *DamagedError if some are not. Damaged blobs are set aside, so that they are fetched again; blobs
// whose files were changed and are right again are named because earlier reads are uncertain. Every
// later Wait of this Vouching returns the same error. Wait does not wait for other readers.
func (v *Vouching) Wait(ctx context.Context) error {
	by := v.by
	after := by.checks.begun()
	v.mu.Lock()
	used, read := slices.Clone(v.order), slices.Clone(v.read)
	v.mu.Unlock()
	wrong := make([]bool, len(used))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, ver := range used {
		if err := ctx.Err(); err != nil {
			_ = group.Wait()
			return context.Cause(ctx)
		}
		if by.unchanged(ver) { // as verifyDoubtful would find, in parallel with the others
			continue
		}
		group.Go(func() error {
			sound, err := v.sound(ctx, ver, after)
			wrong[i] = !sound
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	ds := make([]digest.Digest, len(used))
	for i, ver := range used {
		ds[i] = ver.digest
	}
	damaged := slices.Concat(by.files.since(damaged, ds, v.began),
		by.files.since(damaged, read, v.former), by.files.since(unproven, read, v.left))
	for i, ver := range used {
		if wrong[i] || v.changed(ver) || v.leftUnverified(ver) {
			damaged = append(damaged, ver.digest)
		}
	}
	if len(damaged) > 0 {
		return &cas.DamagedError{Digests: digest.Distinct(damaged)}
	}
	return nil
}

// changed reports whether others changed the file of ver since it was used. It may be right now,
// and have been wrong when it was read.
func (v *Vouching) changed(ver version) bool {
	v.mu.Lock()
	used := v.used[ver]
	v.mu.Unlock()
	generation, now, ok := v.by.files.look(ver.digest)
	if ok && generation == ver.generation {
		return now.strange != used.strange
	}
	return len(v.by.files.since(strange, []digest.Digest{ver.digest}, used.before)) > 0
}

// early is the fault of a file that came after its use was announced, and left before it could be
// vouched for. Where recent verifications count, it is right if its bytes were ever hashed, as they
// are on the way. Most files that leave a store were not verified recently, and have no users.
func (v *Verifier) early() fault {
	if v.every < 0 {
		return unproven
	}
	return unhashed
}

// leftUnverified reports whether a file that came after its use was announced has left while it was
// unverified. No check prevented that, unlike for a file that was there.
func (v *Vouching) leftUnverified(ver version) bool {
	v.mu.Lock()
	used := v.used[ver]
	v.mu.Unlock()
	return ver.generation == 0 && len(v.by.files.since(v.by.early(), []digest.Digest{ver.digest}, used.left)) > 0
}

// sound reports whether ver, or its successor, is right.
func (v *Vouching) sound(ctx context.Context, ver version, after uint64) (bool, error) {
	_, err := v.by.verifyDoubtful(ctx, ver.digest, after)
	var damaged *cas.DamagedError
	if errors.As(err, &damaged) {
		return false, nil
	}
	if err != nil || v.by.files.has(ver.digest, ver.generation) {
		return err == nil, err
	}
	if v.by.files.stuck.has(ver.digest) {
		v.by.files.unstick(ver.digest)
		return false, nil
	}
	// Its file is gone, or no longer in its place. If the reason was damage, the ledger knows.
	// Otherwise the file was verified when it was used, or later, because the check prevented its
	// eviction.
	v.mu.Lock()
	c := v.used[ver].check
	v.mu.Unlock()
	if c == nil {
		return true, nil
	}
	select {
	case <-c.done:
		return c.err == nil, nil
	default:
		return false, nil
	}
}

// Close ends v, and cancels verifications that no other caller needs. Further calls do nothing.
func (v *Vouching) Close() {
	v.mu.Lock()
	var checks []*check
	if !v.closed {
		for _, u := range v.used {
			if u.check != nil {
				checks = append(checks, u.check)
			}
		}
	}
	pinned := v.pinned
	v.pinned, v.closed = nil, true
	v.mu.Unlock()
	for _, c := range checks {
		v.by.checks.leave(c)
	}
	for _, d := range pinned {
		v.by.files.unpin(d)
	}
}
