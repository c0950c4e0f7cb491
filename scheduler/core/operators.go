package core

import (
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

func (e Kill) apply(s *State) error {
	for _, name := range e.Names {
		if o := s.operations.byName[name]; o != nil && !o.done() {
			s.abort(o, failure(codes.FailedPrecondition, "an operator has killed the operation: "+e.Reason))
			s.out.Killed++
		}
	}
	return nil
}

func (e Drain) apply(s *State) error {
	changed, err := s.workers.drain(e.Pattern)
	if changed {
		s.redrain()
	}
	return err
}

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

func (e PutQuota) apply(s *State) error {
	k := e.QuotaKey
	c := s.dispatch.cohort(k.Cohort)
	if err := s.dispatch.admitQuota(c, k, e.Quota); err != nil {
		return fmt.Errorf("put quota of %q in cohort %q: %w", k.Instance, k.Cohort, err)
	}
	s.dispatch.setQuota(c, k.Instance, e.Quota)
	if e.Preempt {
		c.stopExcess(k.Instance)
	}
	return nil
}

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
