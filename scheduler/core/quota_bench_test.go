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

// BenchmarkBehindMaximum is a worker that ends an action of one instance and is given the next,
// while so many others are at their maximum and have something waiting.
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

// BenchmarkPoolsOfCohort is a worker that ends an action and is given the next, in a cohort of so
// many pools of a worker each.
func BenchmarkPoolsOfCohort(b *testing.B) {
	for _, pools := range []int{1, 1000} {
		b.Run(fmt.Sprint(pools), func(b *testing.B) {
			state := must(NewState(oneCohort()))
			calls := uint64(0)
			report := func(pool int, r event.Report) event.Out {
				calls++
				r.Call, r.Worker = calls, fmt.Sprint("w", pool)
				r.Platform = request.NewPlatform(parsePlatform(fmt.Sprintf("OS=x,pool=%d", pool)))
				return state.Step(epoch, &r)
			}
			state.Step(epoch, PutQuota{Record: quota.Record{Key: quota.Key{
				Cohort:   "farm",
				Instance: "a",
			}, Quota: quota.Quota{Min: 1, Max: 1}}})
			for i := range pools {
				report(i, event.Report{Doing: event.Idle})
			}
			made := 0
			submit := func() {
				made++
				name := fmt.Sprint(made)
				state.Step(epoch, event.Submit{Operation: &request.Operation{
					Name: name, Instance: "a", Digest: digest.Of(digest.SHA256, []byte(name)),
					Action: &repb.Action{}, Platform: request.NewPlatform(parsePlatform("OS=x,pool=0")),
				}})
			}
			submit()
			out := event.Out{}
			for b.Loop() {
				submit()
				running := state.workers.Get("w0").task
				out = report(0, event.Report{
					Doing: event.Completed, Action: running.spec.Digest,
					Response: &repb.ExecuteResponse{Result: &repb.ActionResult{}},
				})
				if out.Replies[0].Do != event.Execute {
					b.Fatalf("%+v", out.Replies)
				}
			}
		})
	}
}
