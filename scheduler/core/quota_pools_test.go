package core

import (
	"fmt"
	"testing"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// TestStartsInPoolsOfCohort has an instance that waits in all pools of a cohort end one action and
// start the next, also at its minimum and maximum: that takes as much effort as with two pools.
func TestStartsInPoolsOfCohort(t *testing.T) {
	const few, many = 2, 200
	for name, quotaOf := range map[string]func(pools int64) quota.Quota{
		"none":            func(int64) quota.Quota { return quota.Quota{} },
		"maximum":         func(pools int64) quota.Quota { return quota.Quota{Max: pools} },
		"both":            func(pools int64) quota.Quota { return quota.Quota{Min: pools, Max: pools} },
		"below minimum":   func(pools int64) quota.Quota { return quota.Quota{Min: 2 * pools} },
		"others are idle": func(int64) quota.Quota { return quota.Quota{Max: 1} },
		"one guaranteed":  func(int64) quota.Quota { return quota.Quota{Min: 1} },
		"all idle":        func(int64) quota.Quota { return quota.Quota{Min: 1, Max: 1} },
	} {
		t.Run(name, func(t *testing.T) {
			effort := func(pools int) int {
				m := newMall(pools, pools, quotaOf(int64(pools)))
				m.submit(0)
				out := m.end(0)
				if out.Replies[0].Do != event.Execute || out.Replies[0].Run.Instance != "a" {
					t.Fatalf("%+v", out)
				}
				if problem := m.state.Check(); problem != "" {
					t.Fatal(problem)
				}
				return m.state.cfg.StepEffort - m.state.dispatch.effort.Left
			}
			if with2, with200 := effort(few), effort(many); with200 > with2 {
				t.Errorf("a start takes an effort of %d with %d pools, of %d with %d", with2, few, with200, many)
			}
		})
	}
}

// TestIdlePoolsTakeTurns has an instance at its maximum that waits in many pools with idle workers.
// An action that ends in a pool without waiting actions makes room for another pool: each in its
// turn.
func TestIdlePoolsTakeTurns(t *testing.T) {
	const pools = 50
	m := newMall(pools, pools, quota.Quota{Max: 1})
	turns := make([]int, pools)
	busy := 0
	for range 2*pools - 1 {
		turns[busy]++
		out := m.end(busy)
		if problem := m.state.Check(); problem != "" {
			t.Fatal(problem)
		}
		for i := range pools {
			if w := m.state.workers.Get(fmt.Sprint("w", i)); w.task != nil {
				busy = i
			}
		}
		if m.state.dispatch.executing > 1 {
			t.Fatalf("%d run, the maximum is 1: %+v", m.state.dispatch.executing, out)
		}
	}
	if m.state.dispatch.queued+m.state.dispatch.executing > 0 {
		t.Fatalf("%d wait, %d run: pools had turns %v", m.state.dispatch.queued, m.state.dispatch.executing, turns)
	}
}

// TestRoomForMany raises the maximum of an instance that waits for many idle workers. Each event
// must assign as many of its actions as its effort allows, and ask for the next event at once.
func TestRoomForMany(t *testing.T) {
	const workers = 3000
	m := newMall(1, 1, quota.Quota{Max: 1})
	for i := 1; i < workers; i++ {
		m.calls++
		m.state.Step(epoch, &event.Report{
			Call: uint64(m.calls), Worker: fmt.Sprint("w", i), Doing: event.Idle, Platform: m.platform(0),
		})
		m.submit(0)
	}
	out := m.state.Step(epoch, PutQuota{Record: quota.Record{
		Key: quota.Key{Cohort: "farm", Instance: "a"}, Quota: quota.Quota{Max: workers},
	}})
	before, most := 1, 0
	for {
		runs := m.state.dispatch.executing
		most, before = max(most, runs-before), runs
		if out.NextTick.After(epoch) {
			break
		}
		out = m.state.Step(epoch, event.Tick{})
	}
	if limit := 1 + tuning.DefaultEffort/endEffort; before != workers || most > limit {
		t.Errorf("%d of %d run, %d began in one event, want %d at most", before, workers, most, limit)
	}
	if problem := m.state.Check(); problem != "" {
		t.Error(problem)
	}
}
