package core

import (
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// Orders returns one of each of the events that operators cause. A Journal records them as JSON.
func Orders() []Event {
	return []Event{Kill{}, Drain{}, Undrain{}, PutQuota{}, DeleteQuota{}}
}

// Kill ends operations for all who wait for them, as an operator wants; see Out.Killed. Bazel takes CANCELLED and
// ABORTED for mishaps and PERMISSION_DENIED for old credentials, and tries again; so clients are told
// FAILED_PRECONDITION.
type Kill struct {
	Names  []string
	Reason string
}

func (e Kill) apply(s *State) error {
	for _, name := range e.Names {
		if o := s.operations.byName[name]; o != nil && !o.done() {
			s.abort(o, failure(codes.FailedPrecondition, "an operator has killed the operation: "+e.Reason))
			s.out.Killed++
		}
	}
	return nil
}

// Drain lets the workers that a pattern matches, those of now and those to come, finish
// what they have and gives them nothing more, until Undrain. It is refused with ErrTooManyDrains.
type Drain struct{ DrainRecord }

func (e Drain) apply(s *State) error {
	if e.Since.IsZero() {
		e.Since = s.now
	}
	changed, err := s.workers.drain(e.DrainRecord)
	if changed {
		s.redrain()
	}
	return err
}

// Undrain takes back what Drain did with an equal pattern, or is refused with ErrUnknown if that is not
// in force. A worker that another pattern matches too stays drained.
type Undrain struct{ Pattern Pattern }

func (e Undrain) apply(s *State) error {
	if !s.workers.undrain(e.Pattern) {
		return ErrUnknown
	}
	s.redrain()
	return nil
}

// redrain applies the patterns in force to all workers, in the order of their names.
func (s *State) redrain() {
	for _, w := range s.workers.sorted() {
		may := !s.workers.isDrained(w)
		if may == (w.takes != drained) {
			continue
		}
		if !may {
			// A call that is held stays so: the worker would come back at once.
			w.unidle()
		}
		s.dispatch.serve(w, may)
		if may && w.held {
			s.dispatch.offer(w)
		}
	}
}

// PutQuota gives an instance a quota of a cohort. What it has running above its maximum
// goes on or, with Preempt, is stopped as soon as the workers call, and waits again. It is refused with ErrNoCohort,
// ErrBadQuota or ErrTooManyQuotas.
type PutQuota struct {
	QuotaRecord
	Preempt bool
}

func (e PutQuota) apply(s *State) error {
	k := e.QuotaKey
	c := s.dispatch.cohort(k.Cohort)
	if err := s.dispatch.admitQuota(c, k, e.Quota); err != nil {
		return fmt.Errorf("put quota of %q in cohort %q: %w", k.Instance, k.Cohort, err)
	}
	s.dispatch.setQuota(c, k.Instance, e.Quota)
	if e.Preempt {
		c.stopOverMax(k.Instance)
	}
	return nil
}

// DeleteQuota takes a quota back, or is refused with ErrUnknown if there is none.
type DeleteQuota struct{ QuotaKey }

func (e DeleteQuota) apply(s *State) error {
	c := s.dispatch.cohort(e.Cohort)
	if c == nil {
		return ErrUnknown
	}
	if _, known := c.quotas[e.Instance]; !known {
		return ErrUnknown
	}
	s.dispatch.setQuota(c, e.Instance, quota.Quota{})
	return nil
}
