package machine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	// settled is by how much the kernel's time of a change may be earlier than the change.
	settled = 20 * time.Millisecond
	// restShare is the ratio of the pause between checks of all files to the duration of a check.
	restShare = 10
)

var (
	errChanged = errors.New("files that commands see, or mounts there, have changed since the worker's start")
	errClosed  = errors.New("no caller is left")
)

// Options define which parts of a machine are examined.
type Options struct {
	// Shown are the files and folders that commands see, Hidden the real paths of those that they
	// do not see, wherever these are.
	Shown, Hidden []string
	// Facts are the result of function Facts.
	Facts []string
	// Logger gets one line when the machine has a name, or when it has none, with the reason.
	// Required.
	Logger *zap.Logger
}

// An Examined is a machine whose name is derived from everything that commands see of it. Make one
// with Examine before their view is prepared; Begin reads its files.
type Examined struct {
	files  visibleFiles
	facts  []string
	log    *zap.Logger
	began  time.Time // before the commands' view was prepared
	mounts string    // then

	alive context.Context
	end   context.CancelFunc
	ended sync.WaitGroup

	mu   sync.Mutex
	name string // empty: it has none yet, or none any more; guarded by mu
	why  error  // it never will have; guarded by mu
	// first is the state when its files were read; guarded by mu
	first glance
	// seen is when a look began that found nothing changed, and took how long such a look takes;
	// guarded by mu
	seen time.Time
	took time.Duration
	// looking is closed when the check in progress has ended, which pauses until begins; nil: there
	// is none; guarded by mu
	looking chan struct{}
	begins  time.Time // guarded by mu
}

// Examine returns the machine in its state from now on. It has no name yet.
func Examine(o Options) (*Examined, error) {
	e := &Examined{files: visibleFiles{o.Shown, o.Hidden}, facts: o.Facts, log: o.Logger, began: time.Now()}
	e.alive, e.end = context.WithCancel(context.Background())
	var err error
	e.mounts, err = e.files.mounts()
	return e, err
}

// Begin starts reading the files, from which the machine gets its name.
func (e *Examined) Begin() {
	e.ended.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer giveWay(0)
		giveWay(3 << 13) // IOPRIO_CLASS_IDLE
		e.read()
	})
}

// Close ends the work in progress.
func (e *Examined) Close() {
	e.end()
	e.mu.Lock()
	e.name, e.why = "", errClosed
	e.mu.Unlock()
	e.ended.Wait()
}

// differs reports that the machine has changed, with the latest change.
func (g glance) differs() error { return fmt.Errorf("%w: the latest is %s", errChanged, g.changed) }

// giveWay sets the priority of the calling thread's reads (ioprio_set(2)).
func giveWay(priority uintptr) {
	const thread = 1                                                 // IOPRIO_WHO_PROCESS
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, thread, 0, priority) // it is as well done without
}

func (e *Examined) read() {
	began := time.Now()
	first, err := e.files.glance(e.alive)
	if err == nil && (first.latest >= e.began.Add(-settled).UnixNano() || first.mounts != e.mounts) {
		err = first.differs()
	}
	var files string
	if err == nil {
		files, err = e.files.digest(e.alive)
	}
	checked := time.Now()
	if err == nil {
		var again glance
		if again, err = e.files.glance(e.alive); err == nil && again != first {
			err = again.differs()
		}
	}
	if err != nil {
		e.giveUp(err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.why == nil {
		e.name, e.first, e.seen, e.took = digestOf("examined", append([]string{files}, e.facts...)), first, checked, time.Since(checked)
		e.log.Info("runs are shared with workers whose commands see the same files",
			zap.String("files", files[:16]), zap.Duration("took", time.Since(began).Round(time.Millisecond)))
	}
}

// giveUp makes the machine like no other from now on.
func (e *Examined) giveUp(why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.why != nil || e.alive.Err() != nil {
		return
	}
	e.name, e.why = "", why
	e.log.Warn("runs are no longer shared with other workers", zap.NamedError("because", why),
		zap.String("remedy", "start the worker anew, or name machines that are alike: tuning.reuse_machine"))
}

// As returns a name that the machine shares with machines that are alike, if it has not changed
// since a time. It may have to check all files. It waits for that, unless the check would begin
// after the deadline of ctx.
func (e *Examined) As(ctx context.Context, since time.Time) (string, bool) {
	for {
		e.mu.Lock()
		if e.name == "" || e.seen.After(since) {
			defer e.mu.Unlock()
			return e.name, e.name != ""
		}
		if e.looking == nil {
			e.looking = make(chan struct{})
			e.begins = e.seen.Add(restShare * e.took)
			rest := time.Until(e.begins)
			e.ended.Go(func() { e.look(rest) })
		}
		looking, begins := e.looking, e.begins
		e.mu.Unlock()
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(begins) {
			return "", false
		}
		select {
		case <-looking:
		case <-ctx.Done():
			return "", false
		}
	}
}

// Known is As without a check: it returns false unless one has found the machine unchanged since
// that time.
func (e *Examined) Known(since time.Time) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.name == "" || !e.seen.After(since) {
		return "", false
	}
	return e.name, true
}

// look checks, after a pause, whether the machine is unchanged.
func (e *Examined) look(rest time.Duration) {
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.alive.Done():
	}
	began := time.Now()
	now, err := e.files.glance(e.alive)
	if err == nil && now != e.first {
		err = now.differs()
	}
	if err != nil {
		e.giveUp(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.name = "" // also when that is said already
	} else {
		e.seen, e.took = began, time.Since(began)
	}
	close(e.looking)
	e.looking = nil
}
