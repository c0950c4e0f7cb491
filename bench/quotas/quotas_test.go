package quotas

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// checkQuotas returns an error if the farm breaks a rule: no instance is above its maximum; and
// when an instance below its minimum has waited for longer than delay plus grace, no other instance
// has a slot above its minimum that could be preempted.
func (f *quotaFarm) checkQuotas() error {
	limit := f.delay + f.grace
	for _, c := range f.cohortList {
		for _, n := range c.instances {
			if n.quota.Max > 0 && n.used > n.quota.Max {
				return fmt.Errorf("%s has %d of at most %d", n.name, n.used, n.quota.Max)
			}
			if n.below.IsZero() || f.now.Sub(n.below) <= limit || f.now.Sub(n.waiting[0].since) <= limit {
				continue
			}
			for _, w := range c.workers {
				if op := w.op; op != nil && op.instance.used > op.instance.quota.Min && op.stopped < f.atMost &&
					f.now.Before(w.end.Add(-f.upload)) {
					return fmt.Errorf("%s with %d of %d waits for %s, and %s has %d of %d",
						n.name, n.used, n.quota.Min, f.now.Sub(n.below), op.instance.name, op.instance.used, op.instance.quota.Min)
				}
			}
		}
	}
	return nil
}

// TestQuotasAreKept checks farms with varying demand after each event.
func TestQuotasAreKept(t *testing.T) {
	for seed := range uint64(6) {
		shape := quotaShape{
			cohorts: 2, workers: 14, instances: 5, typical: 3 * time.Minute, length: 4 * time.Hour, pace: 10 * time.Minute, delay: 10 * time.Second, grace: 5 * time.Second,
			atMost: 1000, seed: seed,
		}
		if seed%2 == 1 {
			shape.stop, shape.upload, shape.atMost, shape.pace = time.Second, 5*time.Second, 2, time.Minute
			shape.typical, shape.greedy, shape.length = 30*time.Second, true, time.Hour
		}
		f, err := newQuotaFarm(shape)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.run(func() error { return f.checkQuotas() }); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if got := f.figures(0); got.stopped == 0 || got.ended < 200 || got.utilisation < 0.9 {
			t.Errorf("seed %d: the simulation exercises too little: %+v", seed, got)
		}
	}
}

// TestQuotasCheckCanFail checks that the check reports a farm without preemption.
func TestQuotasCheckCanFail(t *testing.T) {
	f, err := newQuotaFarm(quotaShape{
		cohorts: 1, workers: 14, instances: 5, typical: 3 * time.Minute, length: 4 * time.Hour, pace: 10 * time.Minute, delay: 10 * time.Hour, grace: 5 * time.Second, atMost: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.delay = 10 * time.Second
	broken := errors.New("")
	if err := f.run(func() error {
		if f.checkQuotas() != nil {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("no instance waits for its minimum: %v", err)
	}
}
