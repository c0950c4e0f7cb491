package core

import (
	"container/list"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// A brought is a result that a worker held when nobody had asked for it, as after
// a restart of the scheduler. It is kept for a client to come back to.
type brought struct {
	action   action
	pool     *pool
	worker   string
	started  time.Time
	response *repb.ExecuteResponse
	timer    timer
	place    *list.Element
}

func (b *brought) due(s *State) { s.discard(b) }

// bring keeps a worker's result. Errors are not kept, nor is a failure on a small size class, which is
// final on the largest only: the client that comes has its action run again.
func (s *State) bring(w *worker, a action, response *repb.ExecuteResponse) {
	largest := w.pool.largest((*queue).served)
	small := largest != nil && w.queue.class < largest.class
	if response.GetStatus().GetCode() != 0 || small && response.GetResult().GetExitCode() != 0 {
		return
	}
	b := &brought{action: a, pool: w.pool, worker: w.key, started: s.now, response: response}
	b.timer.owner = b
	b.place = s.broughtOrder.pushBack(b)
	s.brought[a] = append(s.brought[a], b)
	s.timers.set(&b.timer, s.now.Add(s.cfg.ClientGrace))
	if s.broughtOrder.len() > s.cfg.MaxCompleted {
		oldest, _ := s.broughtOrder.front()
		s.discard(oldest)
	}
}

func (s *State) discard(b *brought) {
	s.timers.stop(&b.timer)
	s.broughtOrder.remove(b.place)
	bs := slices.DeleteFunc(s.brought[b.action], func(x *brought) bool { return x == b })
	if len(bs) > 0 {
		s.brought[b.action] = bs
	} else {
		delete(s.brought, b.action)
	}
}

// broughtFor returns the latest result that is there for an operation, or nil.
func (s *State) broughtFor(spec *Operation, a action) *brought {
	for _, b := range slices.Backward(s.brought[a]) {
		if b.pool.serves(spec) {
			return b
		}
	}
	return nil
}

// deliver completes an operation with a result that was there before it. A private
// operation has it alone.
func (s *State) deliver(b *brought, o *operation) {
	if o.spec.Private {
		s.discard(b)
	}
	o.task = &task{worker: &worker{key: b.worker}, started: b.started, attempts: 1}
	s.complete(o, b.response)
}
