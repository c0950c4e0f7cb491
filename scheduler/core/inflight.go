package core

import (
	"iter"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// maxLook limits how many tasks of one action are compared to find one that fits: clients can make
// any number of them. Tasks beyond it are not found, so the action may run once more than
// necessary.
const maxLook = 1000

// flights are tasks by their action: the oldest of each. Each task links to the next and the
// previous one; the oldest links to the latest as its previous one.
type flights map[request.Key]*task

func (f flights) add(t *task) {
	first := f[t.action]
	if first == nil {
		f[t.action], t.before = t, t
		return
	}
	last := first.before
	last.after, t.before, first.before = t, last, t
}

func (f flights) remove(t *task) {
	first := f[t.action]
	if t.after != nil {
		t.after.before = t.before
	} else {
		first.before = t.before
	}
	switch {
	case first != t:
		t.before.after = t.after
	case t.after != nil:
		f[t.action] = t.after
	default:
		delete(f, t.action)
	}
	t.before, t.after = nil, nil
}

// inFlight are the tasks that wait or run.
type inFlight struct {
	// shared are tasks by their action, except private ones that began here: no operation joins
	// those, so they do not slow down the search for an operation's task.
	shared, private flights
	// launched is the number of the latest task.
	launched uint32
	// apart: see tuning.Config.Apart.
	apart bool
}

func newInFlight(c *tuning.Config) inFlight {
	return inFlight{shared: flights{}, private: flights{}, apart: c.Apart}
}

// add has a task found by its action from now on.
func (f *inFlight) add(t *task) {
	f.launched++
	t.number = f.launched
	f.of(t).add(t)
}

func (f *inFlight) remove(t *task) { f.of(t).remove(t) }

// of returns where a task is found by its action.
func (f *inFlight) of(t *task) flights {
	if t.private {
		return f.private
	}
	return f.shared
}

// joinable returns the task that an operation may share, or nil. Any client that asks for its
// action may have an orphan, also for a private operation, which then has it alone: most likely it
// was that operation's before a restart. The same holds for a restored task, until a client has
// come back for it.
func (f *inFlight) joinable(spec *request.Operation, a request.Key) *task {
	for t := range f.shared.few(a) {
		if t.spec == nil && t.run().as.For(spec.Instance) && t.worker().pool.Serves(spec) {
			return t
		}
		if t.spec == nil || t.spec.Instance != spec.Instance || t.spec.Digest != spec.Digest {
			continue
		}
		if !t.spec.Private && !spec.Private || t.worker() != nil && t.unclaimed() {
			return t
		}
	}
	return nil
}

// waiting returns the oldest task that waits for what a worker of a pool has; nil if there is none.
func (f *inFlight) waiting(p *pool, a request.Ran) (oldest *task) {
	if f.apart && !a.Named {
		return nil
	}
	for _, flights := range [...]flights{f.shared, f.private} {
		for t := range flights.few(a.Key) {
			if t.worker() == nil && a.For(t.spec.Instance) && p.Serves(t.spec) {
				if oldest == nil || t.older(oldest) {
					oldest = t
				}
				break
			}
		}
	}
	return oldest
}

// running returns the task of what a worker of a pool runs, or has run, although another worker has
// it: the former was taken for lost and its action given away. It is nil if there is none, or if it
// may be another run of that action.
func (f *inFlight) running(p *pool, a request.Ran) *task {
	if f.apart && !a.Named {
		return nil
	}
	for t := range f.shared.few(a.Key) {
		if t.worker() != nil && t.worker().pool == p && t.spec != nil && !t.spec.Private && a.For(t.spec.Instance) {
			return t
		}
	}
	return nil
}

// of yields the tasks of an action, the oldest first. They must not change during the iteration.
func (f flights) of(a request.Key) iter.Seq[*task] {
	return func(yield func(*task) bool) {
		for t := f[a]; t != nil && yield(t); t = t.after {
		}
	}
}

// few is of, limited to maxLook tasks.
func (f flights) few(a request.Key) iter.Seq[*task] {
	return func(yield func(*task) bool) {
		left := maxLook
		for t := f[a]; t != nil && left > 0 && yield(t); t = t.after {
			left--
		}
	}
}
