package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/instance"
)

// A Size says on which size class an action starts. The zero Size leaves it on the
// largest, for its own timeout, and what happens there is final.
type Size struct {
	// Class is the one that is wanted. If it has no worker and is not declared the next larger
	// one that has is taken, else the largest.
	Class uint32
	// Timeout is in force on Class; it is shorter than the action's own, or 0 for that. With Hedge the action is
	// not stopped then, but started on the largest class, too, if a worker is idle there at the start.
	Timeout time.Duration
	Hedge   bool
	// Expected is how long the action is thought to run there, 0 if that is not known;
	// Reason is for people.
	Expected time.Duration
	Reason   string
}

// An Ended is one run of an action with a Size, for the caller to learn from.
type Ended struct {
	*Operation
	// Class is that of the worker, Largest the largest one that there is.
	Class, Largest uint32
	// Again: it failed on a smaller class than the largest, or with less time than its own, and runs on the largest now. Late: it is the second of two
	// runs at once, begun because the first one took longer than Size.Timeout.
	Again, Late bool
	Response    *repb.ExecuteResponse
}

// smallest returns the queue of the smallest size class that fits, from class on.
func (p *pool) smallest(class uint32, fits func(*queue) bool) *queue {
	for _, q := range p.queues {
		if q.class >= class && fits(q) {
			return q
		}
	}
	return nil
}

// suited returns the queue for a size class, 0 being the largest; nil if none fits.
func (p *pool) suited(class uint32, fits func(*queue) bool) *queue {
	if class > 0 {
		if q := p.smallest(class, fits); q != nil {
			return q
		}
	}
	return p.largest(fits)
}

// A SizeClass is one on which an action could run, with how long it would wait there.
type SizeClass struct {
	Size uint32
	Wait time.Duration
}

// SizeClasses returns the size classes on which an action could run, in ascending order, as of
// the last event. They are those of the workers that would get it,
// and those that are declared.
func (s *State) SizeClasses(spec *Operation) (classes []SizeClass) {
	q := s.dispatch.match(spec, 0, true)
	if q == nil {
		return nil
	}
	for _, other := range q.pool.queues {
		if (other.expected() || other == q) && other.hasRoom(spec.Instance) {
			classes = append(classes, SizeClass{Size: other.class, Wait: other.wait()})
		}
	}
	return classes
}

// AllSizeClasses is SizeClasses for actions of an instance name, on whatever platform; of equal ones the
// shortest wait.
func (s *State) AllSizeClasses(instanceName string) (classes []SizeClass) {
	for _, p := range s.dispatch.pools {
		if instance.Below(instanceName, p.prefix) {
			classes = append(classes, s.SizeClasses(&Operation{Instance: instanceName, Platform: p.platform})...)
		}
	}
	slices.SortFunc(classes, func(a, b SizeClass) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Wait, b.Wait))
	})
	return slices.CompactFunc(classes, func(a, b SizeClass) bool { return a.Size == b.Size })
}

// class is the size class that a task wants, 0 for the largest.
func (t *task) class() uint32 {
	if t.outgrown {
		return 0
	}
	return t.spec.Size.Class
}

// cutShort reports whether the run of a task on a worker has less time than its action may take.
func (t *task) cutShort(w *worker) bool {
	size := t.spec.Size
	return size.Timeout > 0 && w == t.worker && w.queue.class == size.Class && !t.outgrown && !t.hedged
}

// mispredicted reports whether a failed run on a worker says nothing of the action, because
// there is a larger one, or was when it was given less time than its own, and which the largest is.
func (s *State) mispredicted(t *task, w *worker, resp *repb.ExecuteResponse) (largest uint32, ok bool) {
	largest = w.queue.class
	fits := func(q *queue) bool {
		return (q.served() || !t.impatient && q.declared) && q.hasRoom(t.spec.Instance)
	}
	if q := w.pool.largest(fits); q != nil {
		largest = max(largest, q.class)
	}
	code := codes.Code(resp.GetStatus().GetCode())
	if code == codes.DeadlineExceeded && t.cutShort(w) {
		return largest, true
	}
	failed := code == codes.DeadlineExceeded || code == codes.OK && resp.GetResult().GetExitCode() != 0
	return largest, failed && (t.spec.Size.Class > 0 || t.inherited) && w.queue.class < largest
}

// conclude ends a task with what a worker of it reports, or runs it again on the largest size class.
func (s *State) conclude(w *worker, e ending) {
	t, resp := w.task, e.response
	if r := t.race; r != nil {
		if !decides(t, w, resp) {
			s.leaveRace(w)
			return
		}
		other := r.worker
		if w == r.worker {
			s.tally.Won++
			other = t.worker
		}
		other.stopping = t.action
		s.leaveRace(other)
	}
	w.queue.load.ran(s.now.Sub(t.started))
	largest, again := s.mispredicted(t, w, resp)
	if t.spec.Size.Class > 0 {
		s.out.Ended = append(s.out.Ended, Ended{
			Operation: t.spec, Class: w.queue.class, Largest: largest, Again: again, Late: t.late, Response: resp,
		})
	}
	if !again {
		if t.outgrown {
			resp = Annotated(resp, fmt.Sprintf("ran on size class %d: %s", w.queue.class, t.why))
		}
		s.finish(t, resp)
		return
	}
	s.tally.Outgrown++
	t.outgrown, t.why = true, fmt.Sprintf("%s on size class %d", failureOf(e), w.queue.class)
	s.dispatch.release(t)
	// It is not the worker that was lost, and the client has waited already.
	t.attempts--
	t.resends, t.returned = 0, true
	s.operations.changedAll(t)
	s.dispatch.enqueue(t)
}

func failureOf(e ending) string {
	resp := e.response
	if e.outOfMemory {
		return "ran out of memory"
	}
	if codes.Code(resp.GetStatus().GetCode()) == codes.DeadlineExceeded {
		return "timed out"
	}
	return fmt.Sprintf("failed with exit code %d", resp.GetResult().GetExitCode())
}

// Annotated returns a response with a further line for people.
func Annotated(resp *repb.ExecuteResponse, line string) *repb.ExecuteResponse {
	resp = proto.CloneOf(resp)
	if resp.Message != "" {
		resp.Message += "\n"
	}
	resp.Message += line
	return resp
}

// size fills in what a reply to a worker says of the size class of its run.
func (r *Reply) size(t *task, w *worker) {
	size := t.spec.Size
	r.SizeClass, r.SizeAttempt = w.queue.class, 1
	switch {
	case size.Class == 0:
		r.SizeAttempt = 0
	case t.outgrown || w != t.worker:
		r.SizeAttempt, r.SizeReason = 2, t.why
	case r.SizeClass == size.Class:
		r.Expected, r.SizeReason = size.Expected, size.Reason
		if t.cutShort(w) {
			r.Timeout = size.Timeout
		}
	default:
		r.SizeReason = fmt.Sprintf("size class %d has no worker", size.Class)
	}
}
