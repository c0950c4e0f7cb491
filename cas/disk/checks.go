package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// verifyPiece is how much is hashed before the checker decides again whether to pause, hurry or
	// stop.
	verifyPiece = 512 << 10
	// restFor is the length of the checker's pause as a multiple of its working time, while no
	// caller waits; restFrom is the shortest pause.
	restFor  = 3
	restFrom = 2 * time.Millisecond
)

var (
	// errStopped means that no caller needs the verification any more.
	errStopped = errors.New("the verification was stopped")
	// errReplaced: the file is not the one of its blob any more.
	errReplaced = errors.New("the file was removed or replaced")
)

// A checker reads and hashes blobs in the store. While nobody waits it reads one at a time, with at
// most a quarter of a core; blobs with a waiting caller it reads at once. It pauses by sleeping and
// does not lower the priority of its thread: this process serves FUSE, and all of it would wait for
// a thread that gets no CPU when the garbage collector stops the world.
type checker struct {
	files   *blobs
	buffers *buffers
	width   chan struct{} // a token for each running check with a waiting caller

	mu      sync.Mutex
	checks  map[version]*check // guarded by mu; those that have not ended
	queue   []*check           // guarded by mu; to be run in the background, and some that were begun or left
	awake   bool               // guarded by mu; a goroutine runs queued checks
	serial  uint64             // guarded by mu; of the check begun last
	closed  bool               // guarded by mu
	direct  map[*check]bool    // guarded by mu; run by their callers, see now
	carried int                // guarded by mu; see carryOn
	running sync.WaitGroup     // close waits for it
	blobs   atomic.Int64       // that were hashed
	bytes   atomic.Int64
}

// A version is one file that a blob had.
type version struct {
	digest     digest.Digest
	generation uint64
}

// A check is one verification. If it is one of checker.checks it holds a pin until it has ended.
type check struct {
	version
	done   chan struct{} // closed when it has ended
	err    error         // how; set before done is closed
	stop   chan struct{} // closed when no caller needs it any more
	hurry  chan struct{} // closed when a caller waits
	askers int           // guarded by checker.mu
	serial uint64        // guarded by checker.mu; 0: it has not begun
	waited bool          // guarded by checker.mu; hurry is closed
}

func newChecker(f *blobs, b *buffers) *checker {
	return &checker{
		files: f, buffers: b, width: make(chan struct{}, runtime.GOMAXPROCS(0)),
		checks: map[version]*check{}, direct: map[*check]bool{},
	}
}

// close stops all checks and waits for their end.
func (v *checker) close() {
	v.mu.Lock()
	v.closed = true
	for c := range v.direct {
		c.haltLocked()
	}
	var idle []*check
	for _, c := range v.checks {
		v.stopLocked(c)
		if c.serial == 0 {
			idle = append(idle, c)
		}
	}
	v.mu.Unlock()
	for _, c := range idle {
		v.end(c, errStopped)
	}
	v.running.Wait()
}

// ask joins the check of ver, or makes it and takes over the pin of the caller. The caller must
// call leave.
func (v *checker) ask(ver version) *check {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.checks[ver]
	if c != nil {
		c.askers++
		v.files.unpin(ver.digest)
		return c
	}
	c = &check{version: ver, askers: 1, done: make(chan struct{}), stop: make(chan struct{}), hurry: make(chan struct{})}
	if v.closed {
		c.err = errStopped
		close(c.done)
		v.files.unpin(ver.digest)
		return c
	}
	v.checks[ver] = c
	return c
}

// queueUp runs c in the background.
func (v *checker) queueUp(c *check) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c.serial != 0 || v.checks[c.version] != c {
		return
	}
	v.queue = append(v.queue, c)
	if !v.awake {
		v.awake = true
		v.running.Go(v.drain)
	}
}

// drain runs queued checks.
func (v *checker) drain() {
	var debt time.Duration
	for c := v.next(); c != nil; c = v.next() {
		v.run(c, &debt)
	}
}

func (v *checker) next() *check {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.queue) > 0 {
		c := v.queue[0]
		v.queue[0] = nil
		v.queue = v.queue[1:]
		if v.beginLocked(c) {
			return c
		}
	}
	v.queue, v.awake = nil, false
	return nil
}

// beginLocked assigns c to the caller, unless another caller runs it or did.
func (v *checker) beginLocked(c *check) bool {
	if c.serial != 0 || v.checks[c.version] != c {
		return false
	}
	v.serial++
	c.serial = v.serial
	return true
}

// begun returns the serial of the check that began last: those with a greater one
// begin after the call.
func (v *checker) begun() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.serial
}

// wait waits for c, runs it at once if it was not run, and leaves it. It reports whether c began
// after that number of others.
func (v *checker) wait(ctx context.Context, c *check, after uint64) (later bool, err error) {
	v.mu.Lock()
	if !c.waited {
		c.waited = true
		close(c.hurry)
	}
	if v.beginLocked(c) {
		v.running.Go(func() {
			v.width <- struct{}{}
			defer func() { <-v.width }()
			v.run(c, new(time.Duration))
		})
	}
	later = c.serial > after
	v.mu.Unlock()
	defer v.leave(c)
	select {
	case <-c.done:
		return later, c.err
	case <-ctx.Done():
		return later, context.Cause(ctx)
	}
}

// maxCarried limits the checks that go on without a caller: each pins its blob.
const maxCarried = 64

// carryOn runs c in the background until its end, unless too many run so. It leaves c.
func (v *checker) carryOn(c *check) {
	v.mu.Lock()
	carries := v.carried < maxCarried && v.checks[c.version] == c
	if carries {
		v.carried++
		v.running.Add(1)
	}
	v.mu.Unlock()
	if !carries {
		v.leave(c)
		return
	}
	v.queueUp(c)
	go func() {
		defer v.running.Done()
		<-c.done
		v.leave(c)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.carried--
	}()
}

// leave says that one caller does not need c any more.
func (v *checker) leave(c *check) {
	v.mu.Lock()
	c.askers--
	idle := false
	if c.askers == 0 && v.checks[c.version] == c {
		v.stopLocked(c)
		idle = c.serial == 0
	}
	v.mu.Unlock()
	if idle {
		v.end(c, errStopped)
	}
}

// stopLocked ends c early. Later callers for the same version get a separate check.
func (v *checker) stopLocked(c *check) {
	delete(v.checks, c.version)
	c.haltLocked()
}

// haltLocked makes the runner of c stop soon. The caller holds checker.mu.
func (c *check) haltLocked() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
}

// end ends c, once.
func (v *checker) end(c *check, err error) {
	v.mu.Lock()
	if v.checks[c.version] == c {
		delete(v.checks, c.version)
	}
	v.mu.Unlock()
	v.files.unpin(c.digest)
	c.err = err
	close(c.done)
}

// now reads and hashes ver at once, without a pin. If ver is evicted or replaced during that, the
// error is errReplaced.
func (v *checker) now(ctx context.Context, ver version) error {
	c, ok := v.beginDirect(ver)
	if !ok {
		return errStopped
	}
	defer v.endDirect(c)
	defer context.AfterFunc(ctx, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		c.haltLocked()
	})()
	select {
	case v.width <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-v.width }()
	found, err := v.read(c, new(time.Duration))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case found != "" && v.files.drop(c.digest, c.generation, found):
		return &cas.DamagedError{Digests: []digest.Digest{c.digest}}
	case err != nil:
		return fmt.Errorf("verify blob %s: %w", c.digest, err)
	case !v.files.has(c.digest, c.generation):
		return errReplaced
	}
	return nil
}

// beginDirect makes a check that the caller runs, and which close waits for. ok is false after
// close.
func (v *checker) beginDirect(ver version) (c *check, ok bool) {
	c = &check{version: ver, stop: make(chan struct{}), hurry: make(chan struct{})}
	close(c.hurry)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, false
	}
	v.direct[c] = true
	v.running.Add(1)
	return c, true
}

func (v *checker) endDirect(c *check) {
	v.mu.Lock()
	delete(v.direct, c)
	v.mu.Unlock()
	v.running.Done()
}

// run reads and hashes the file of c. debt is the pending pause.
func (v *checker) run(c *check, debt *time.Duration) {
	found, err := v.read(c, debt)
	switch {
	case found != "":
		v.files.drop(c.digest, c.generation, found)
		err = &cas.DamagedError{Digests: []digest.Digest{c.digest}}
	case err != nil:
		err = fmt.Errorf("verify blob %s: %w", c.digest, err)
	case !v.files.has(c.digest, c.generation):
		// Another caller found it damaged, and our read may be of a newer file.
		err = &cas.DamagedError{Digests: []digest.Digest{c.digest}}
	}
	v.end(c, err)
}

// read opens the file of c and hashes it, and returns its damage.
func (v *checker) read(c *check, debt *time.Duration) (found string, err error) {
	file, found, err := v.files.openWhole(c.digest)
	if err != nil || found != "" {
		return found, err
	}
	defer file.Close()
	return v.examine(c, file, debt)
}

// examine hashes the file of c, and records that it is right or returns its damage.
func (v *checker) examine(c *check, file *os.File, debt *time.Duration) (found string, err error) {
	v.files.verify(c.digest)
	defer v.files.endVerify(c.digest)
	reading, err := beginReading(file.Fd())
	if err != nil {
		return "", err
	}
	buffer := v.buffers.get()
	defer v.buffers.put(buffer)
	hasher := digest.NewHasher(c.digest.Function())
	for since, piece := reading.began, 0; err == nil; {
		var n int
		n, err = file.Read(*buffer)
		_, _ = hasher.Write((*buffer)[:n]) // never fails
		if piece += n; err == nil && piece < verifyPiece {
			continue
		}
		*debt += restFor * time.Since(since)
		if !c.rest(debt) {
			return "", errStopped
		}
		since, piece = time.Now(), 0
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Sprintf("cannot be read: %v", err), nil
	}
	v.count(hasher.SizeBytes())
	if got := hasher.Digest(); got != c.digest {
		return fmt.Sprintf("has %d bytes of the hash %s", got.SizeBytes(), got.Hash()), nil
	}
	v.files.prove(c.digest, c.generation, reading.proof())
	return "", nil
}

// rest pauses for the pending time, unless a caller waits. It returns false when c must end.
func (c *check) rest(debt *time.Duration) bool {
	select {
	case <-c.stop:
		return false
	case <-c.hurry:
		*debt = 0
		return true
	default:
	}
	if *debt < restFrom {
		return true
	}
	timer := time.NewTimer(*debt)
	defer timer.Stop()
	*debt = 0
	select {
	case <-timer.C:
	case <-c.hurry:
	case <-c.stop:
		return false
	}
	return true
}

// count counts that a blob was read and hashed.
func (v *checker) count(bytes int64) {
	v.blobs.Add(1)
	v.bytes.Add(bytes)
}
