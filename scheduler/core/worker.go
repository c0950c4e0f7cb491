package core

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// A worker is one identity that calls Synchronize. It runs at most one task.
type worker struct {
	key   string
	id    map[string]string
	pool  *pool
	queue *queue
	// program are the workers that share its process.
	program *program
	// takes says whether it takes work, prefersIdle whether it wants none.
	takes       Availability
	prefersIdle bool
	// connection is the one that it last called over; 0 if it is not known.
	connection uint64
	// boot and address are those of its last Report. twin is where another process was that called as the same
	// worker, and was refused, at that time; empty: none was.
	boot, address string
	twin          string
	refused       time.Time

	// duty is what it has to do by State's account, with task; stage is how far it says that it is.
	duty  duty
	task  *task
	stage event.Stage
	// stopping is an action that nobody wants and that it may still run.
	stopping action
	// reported is the end it told last, until it says that it does something else.
	reported ending

	// call is the one that waits for an answer, if held.
	call uint64
	held bool
	// entry is its place in the pool's tree, where it waits while it is idle. A call is
	// also held, without that, while the worker is drained or State settles.
	entry fair.Worker
	// timer is the end of the hold, or else of the worker.
	timer timer.Timer
}

// An Availability says whether a worker takes work.
type Availability uint8

const (
	// Unheard: it has not said so yet, or is about to be forgotten.
	Unheard Availability = iota
	// Serving: it takes work.
	Serving
	// Resting: it prefers to be idle, and may take work again.
	Resting
	// Drained: an operator lets it have none.
	Drained
	// Suspended: its program may have none, or no further one.
	Suspended
)

// counts reports whether a queue counts its workers that are so.
func (a Availability) counts() bool { return a != Unheard }

// A duty says what a worker has to do.
type duty uint8

const (
	// free: nothing; it has no task.
	free duty = iota
	// yielding: to stop its action for others; the action waits to run again, and the worker has nothing else.
	yielding
	// assigned: to run its task, of which it may not have heard.
	assigned
	// confirmed: to run its task, as it has said itself that it does.
	confirmed
	// away: to come back, with its task if it has one. It has not called yet, but had an action before; see Restore.
	away
)

// busy returns what a worker does: its task, or what it has not yet stopped; none if it is free.
func (w *worker) busy() action {
	if w.task != nil {
		return w.task.action
	}
	return w.stopping
}

// free takes its task from a worker.
func (w *worker) free() { w.task, w.duty = nil, free }

// An ending is what a worker reports with Completed.
type ending struct {
	action      action
	response    *repb.ExecuteResponse
	outOfMemory bool
}

// unidle takes a worker from the idle ones, if it is there.
func (w *worker) unidle() {
	if w.entry.Waits() {
		*w.pool.idling--
		w.pool.tree.Unwait(&w.entry)
	}
}

// idle has a worker wait for what comes.
func (w *worker) idle() {
	*w.pool.idling++
	w.pool.tree.Wait(&w.entry)
}

// attribute is what patterns see of a worker: its identity.
func (w *worker) attribute(name string) (string, bool) {
	v, ok := w.id[name]
	return v, ok
}

// spared reports whether the task of a worker is not to be stopped for others.
func (w *worker) spared() bool {
	return w.stage == event.Uploading || w.takes != Serving || w.duty == away
}

// WorkerKey returns the canonical form of a worker's identity below an instance name prefix, which
// is also readable: {"host":"a","slot":"0"}, or acme/{"host":"a"} below acme. No two are the same.
func WorkerKey(prefix string, id map[string]string) string {
	var someNames [8]string
	var room [256]byte
	names := someNames[:0]
	b := room[:0]
	if prefix != "" {
		b = append(append(b, prefix...), '/')
	}
	for name, value := range id {
		if !isPlain(name) || !isPlain(value) {
			// encoding/json sorts the keys of a map, and strings cannot fail.
			text, _ := json.Marshal(id)
			return string(append(b, text...))
		}
		names = append(names, name)
	}
	// Each call of each worker comes here, so what encoding/json would do is done at less cost.
	slices.Sort(names)
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), `":"`...)
		b = append(append(b, id[name]...), '"')
	}
	return string(append(b, '}'))
}

// isPlain reports whether encoding/json writes s as it is.
func isPlain(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			return false
		}
	}
	return true
}
