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
				state.Step(now, event.PutQuota{Record: quota.Record{Key: quota.Key{Cohort: "farm", Instance: instance}, Quota: quota.Quota{Max: 1}}})
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
