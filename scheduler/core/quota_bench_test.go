package core

import (
	"fmt"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// BenchmarkBehindMaximum measures a worker that ends an action of one instance and gets the next
// one, while many other instances are at their maximum and have waiting actions.
func BenchmarkBehindMaximum(b *testing.B) {
	for _, others := range []int{0, 10, 10_000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			state := must(NewState(oneCohort()))
			platform := request.NewPlatform(platformX())
			made, now := 0, epoch
			submit := func(instance string) {
				made++
				name := fmt.Sprint(made)
				state.Step(now, event.Submit{Operation: &request.Operation{
					Name: name, Instance: instance, Digest: digest.Of(digest.SHA256, []byte(name)),
					Action: &repb.Action{}, Platform: platform,
				}})
			}
			calls := uint64(0)
			report := func(worker string, r event.Report) event.Out {
				calls++
				r.Call, r.Worker, r.Platform = calls, worker, platform
				return state.Step(now, &r)
			}
			for i := range others {
				instance := fmt.Sprint("full", i)
				state.Step(now, PutQuota{Record: quota.Record{Key: quota.Key{
					Cohort:   "farm",
					Instance: instance,
				}, Quota: quota.Quota{Max: 1}}})
				report(instance, event.Report{Doing: event.Idle})
				submit(instance)
				submit(instance)
			}
			submit("free")
			out := report("worker", event.Report{Doing: event.Idle})
			for b.Loop() {
				now = now.Add(time.Microsecond)
				submit("free")
				out = report("worker", event.Report{
					Doing: event.Completed, Action: out.Replies[0].Run.Digest,
					Response: &repb.ExecuteResponse{Result: &repb.ActionResult{}},
				})
				if out.Replies[0].Do != event.Execute || out.Replies[0].Run.Instance != "free" {
					b.Fatalf("%+v", out.Replies)
				}
			}
		})
	}
}

// A mall is a State with a cohort of many pools of a worker each, for the instance "a".
type mall struct {
	state       *State
	calls, made int
}

func (m *mall) platform(pool int) request.Platform {
	return request.NewPlatform(parsePlatform(fmt.Sprintf("OS=x,pool=%d", pool)))
}

func (m *mall) report(pool int, r event.Report) event.Out {
	m.calls++
	r.Call, r.Worker, r.Platform = uint64(m.calls), fmt.Sprint("w", pool), m.platform(pool)
	return m.state.Step(epoch, &r)
}

func (m *mall) submit(pool int) {
	m.made++
	name := fmt.Sprint(m.made)
	m.state.Step(epoch, event.Submit{Operation: &request.Operation{
		Name: name, Instance: "a", Digest: digest.Of(digest.SHA256, []byte(name)),
		Action: &repb.Action{}, Platform: m.platform(pool),
	}})
}

// end has the worker of a pool end what it runs.
func (m *mall) end(pool int) event.Out {
	return m.report(pool, event.Report{
		Doing: event.Completed, Action: m.state.workers.Get(fmt.Sprint("w", pool)).task.spec.Digest,
		Response: &repb.ExecuteResponse{Result: &repb.ActionResult{}},
	})
}

// newMall returns a number of pools. The first waits of them run something while another action
// waits.
func newMall(pools, waits int, q quota.Quota) *mall {
	m := &mall{state: must(NewState(oneCohort()))}
	m.state.Step(epoch, PutQuota{Record: quota.Record{Key: quota.Key{Cohort: "farm", Instance: "a"}, Quota: q}})
	for pool := range pools {
		m.report(pool, event.Report{Doing: event.Idle})
	}
	for pool := range waits {
		m.submit(pool)
		if pool > 0 {
			m.submit(pool)
		}
	}
	return m
}

// BenchmarkPoolsOfCohort is a worker that ends an action and is given the next, in a cohort of many
// pools. Its instance waits in one of them, or in all.
func BenchmarkPoolsOfCohort(b *testing.B) {
	for _, c := range []struct {
		pools, waits int
		quota        quota.Quota
	}{
		{1, 1, quota.Quota{Min: 1, Max: 1}},
		{1000, 1, quota.Quota{Min: 1, Max: 1}},
		{1000, 1000, quota.Quota{Max: 2000}},
		{1000, 1000, quota.Quota{Max: 1000}},
		{1000, 1000, quota.Quota{Max: 1}},
		{1000, 1000, quota.Quota{Min: 2000}},
		{1000, 1000, quota.Quota{Min: 1, Max: 1}},
	} {
		b.Run(fmt.Sprintf("pools=%d/waits=%d/min=%d/max=%d", c.pools, c.waits, c.quota.Min, c.quota.Max), func(b *testing.B) {
			m := newMall(c.pools, c.waits, c.quota)
			for b.Loop() {
				m.submit(0)
				if out := m.end(0); out.Replies[0].Do != event.Execute {
					b.Fatalf("%+v", out.Replies)
				}
			}
		})
	}
}
