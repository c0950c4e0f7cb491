package watch

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/forerunner-build/forerunner/worker/census"
)

// longestLook is how long one command is looked at in a trial.
const longestLook = time.Second

// A trial finds the owner of objects that no process shows: it stops one command, the likeliest, and
// sees whether its end frees them.
type trial struct {
	mu      sync.Mutex
	running map[*Watch]bool // the commands that are watched; guarded by mu, as all below
	stopped int             // commands that are being stopped because of objects, or the choice of one
	beside  map[*Watch]bool // the others that ran when it began, and long enough to have the objects
	ended   bool            // one of these has ended since: perhaps that freed the objects
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
	t.ended = t.ended || t.beside[w]
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
// objects may be its own.
func (t *trial) begin(ctx context.Context, found Overuse) {
	t.mu.Lock()
	stopped, running := t.stopped, slices.Collect(maps.Keys(t.running))
	if stopped == 0 {
		t.stopped++
	}
	t.mu.Unlock()
	if stopped > 0 {
		return
	}
	accused := likeliest(ctx, found.kind, running)
	over := found.kind.Over(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if accused == nil || !t.running[accused] || t.stopped > 1 || over || ctx.Err() != nil {
		t.stopped--
		return
	}
	t.beside, t.ended = maps.Clone(t.running), false
	maps.DeleteFunc(t.beside, func(w *Watch, _ bool) bool { return w == accused || time.Since(w.began) < census.Patience })
	accused.accused <- &found
}

// end says whether what a command was stopped for was its own. It has ended. helped: that freed too
// many objects for one command.
func (t *trial) end(ctx context.Context, found *Overuse) (helped bool) {
	helped = found.kind.Left(context.WithoutCancel(ctx), found.before)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped--
	found.Own = found.Own || helped && !(found.accused && t.ended)
	if found.accused {
		t.beside = nil
	}
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
