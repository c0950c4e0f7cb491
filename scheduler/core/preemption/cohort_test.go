package preemption

import (
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// manyPools is how many queues a cohort has here.
const manyPools = 1000

// asked counts how often trees were asked for grades again.
type asked map[string]int

func (a asked) Reconsider(instance string) { a[instance]++ }

// A mall is a cohort of many pools, with what each of their trees was asked.
type mall struct {
	*Cohort
	queues []*Queue
	trees  []asked
}

// newMall has a task of each of two instances wait in every pool, but for those of "few", which wait
// in the first only.
func newMall(quotas map[string]quota.Quota) *mall {
	m := &mall{Cohort: New(quota.Cohort{Name: "farm", Unit: quota.Slots}, &timer.Clock{Now: time.Unix(1e9, 0)}, Options{Delay: time.Hour})}
	for instance, q := range quotas {
		m.Set(instance, q)
	}
	for i := range manyPools {
		m.trees = append(m.trees, asked{})
		m.queues = append(m.queues, m.Queue(1, m.trees[i]))
		for _, instance := range []string{"many", "few", "others"} {
			if instance != "few" || i == 0 {
				m.queues[i].Enter(NewShare(nil, instance))
			}
		}
	}
	return m
}

// work returns how many trees a step asks, and at how many lines it looks.
func (m *mall) work(step func()) (trees, lines int) {
	for _, t := range m.trees {
		clear(t)
	}
	never := m.Now.Add(-time.Hour)
	for _, q := range m.queues {
		for _, l := range q.lines {
			if !l.Short() {
				l.below = never // which a look puts right
			}
		}
	}
	step()
	for i, q := range m.queues {
		trees += len(m.trees[i])
		for _, l := range q.lines {
			if !l.Short() && l.below.IsZero() {
				lines++
			}
		}
	}
	return trees, lines
}

// TestStartsInManyPools has tasks start and end in a cohort of many pools. What that costs depends on
// the pools where the instance waits and may now run more or less, not on the number of pools.
func TestStartsInManyPools(t *testing.T) {
	for name, c := range map[string]struct {
		instance     string
		quota        quota.Quota
		trees, lines int
	}{
		"no quota":                         {"many", quota.Quota{}, 0, 0},
		"far from its maximum":             {"many", quota.Quota{Max: 5}, 0, 0},
		"above its minimum":                {"many", quota.Quota{Min: 1}, 0, 0},
		"reaches its maximum in one pool":  {"few", quota.Quota{Max: 3}, 1, 1},
		"reaches its maximum in all pools": {"many", quota.Quota{Max: 3}, manyPools, manyPools},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMall(map[string]quota.Quota{c.instance: c.quota, "others": {Min: 1, Max: 2}})
			for range 2 { // it uses two, and the next is the third
				m.queues[1].Charge(NewShare(nil, c.instance), Run{})
			}
			next := NewShare(nil, c.instance)
			trees, lines := m.work(func() { m.queues[0].Charge(next, Run{}) })
			if trees != c.trees || lines != c.lines {
				t.Errorf("a start asks %d trees and looks at %d lines, want %d and %d", trees, lines, c.trees, c.lines)
			}
			trees, lines = m.work(next.Discharge)
			if trees != c.trees || lines != c.lines {
				t.Errorf("an end asks %d trees and looks at %d lines, want %d and %d", trees, lines, c.trees, c.lines)
			}
		})
	}
}
