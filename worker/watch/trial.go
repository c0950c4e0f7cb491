package watch

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// longestLook is how long one command is looked at in a trial.
const longestLook = time.Second

// longestWait is how long a trial waits for the end of commands that are being stopped already.
const longestWait = 30 * time.Second

// A trial stops the command that most likely has the objects that no process shows, and sees whether
// its end frees them. It does not say that they were the command's own: others end meanwhile.
type trial struct {
	mu      sync.Mutex
	running map[*Watch]bool // the commands that are watched; guarded by mu, as all below
	stopped int             // commands that are being stopped because of objects, or the choice of one
	waits   time.Time       // since when a trial waits for these; zero: none does
}

// enter adds a command that runs.
func (t *trial) enter(w *Watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == nil {
		t.running = map[*Watch]bool{}
	}
	t.running[w] = true
}

// leave removes a command that has ended or is about to be stopped for what was found; nil: for
// nothing. It returns what it is accused of, or else that.
func (t *trial) leave(w *Watch, found *Overuse) *Overuse {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, w)
	select {
	case charge := <-w.accused:
		charge.Own = found != nil && found.Own
		return charge
	default:
	}
	if found != nil && found.kind != nil && !found.accused && !found.last {
		t.stopped++
	}
	return found
}

// owns reports whether the user is that of a running command, and of no other.
func (t *trial) owns(user uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.running {
		if w.command.owns(user) {
			return true
		}
	}
	return false
}

// begin accuses the likeliest owner of what was found, unless a command is being stopped already: the
// objects may be its own. It returns what all commands are to be stopped for, if there is always such
// a command; nil: for nothing.
func (t *trial) begin(ctx context.Context, found Overuse) *Overuse {
	if mayBegin, late := t.reserve(); late {
		found.accused, found.last = false, true
		return &found
	} else if !mayBegin {
		return nil
	}
	t.mu.Lock()
	running := slices.Collect(maps.Keys(t.running))
	t.mu.Unlock()
	accused := likeliest(ctx, found.kind, running)
	over := found.kind.Over(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if accused == nil || !t.running[accused] || t.stopped > 1 || over || ctx.Err() != nil {
		t.release()
		return nil
	}
	accused.accused <- &found
	return nil
}

// reserve reports whether a trial may begin, and then nothing else does until release. late: it has
// waited for too long.
func (t *trial) reserve() (mayBegin, late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.stopped == 0:
		t.stopped++
		return true, false
	case t.waits.IsZero():
		t.waits = time.Now()
	case time.Since(t.waits) >= longestWait:
		t.waits = time.Time{}
		return false, true
	}
	return false, false
}

// release says that a command is no longer being stopped. The caller holds mu.
func (t *trial) release() {
	if t.stopped--; t.stopped == 0 {
		t.waits = time.Time{}
	}
}

// end follows after the end of a command that was stopped for what was found. helped: that freed too
// many objects for one command.
func (t *trial) end(ctx context.Context, found *Overuse) (helped bool) {
	helped = found.kind.Left(context.WithoutCancel(ctx), found.before)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.release()
	return helped
}

// likeliest returns the command that may have most objects of a kind, or began last.
func likeliest(ctx context.Context, k *scarceKind, all []*Watch) (accused *Watch) {
	most := -1
	for _, w := range all {
		n := max(k.suspicion(ctx, w.command), int(w.peak.Load()))
		if n > most || n == most && w.began.After(accused.began) {
			accused, most = w, n
		}
	}
	return accused
}

// suspicion is how many objects a command may have. One that makes this hard to find out, and perhaps
// as long as it lives, is the most suspicious.
func (k *scarceKind) suspicion(ctx context.Context, c Command) int {
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	perhaps := make(chan int, 1)
	go func() { perhaps <- k.perhaps(ctx, c) }() // ends with the command
	select {
	case n := <-perhaps:
		return n
	case <-ctx.Done():
		return math.MaxInt
	}
}
