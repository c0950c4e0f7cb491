package operators

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	"github.com/forerunner-build/forerunner/scheduler/engine"
)

// maxQueues bounds the queues of one answer.
const maxQueues = 10_000

// queues shows operators the queues.
type queues struct {
	*engine.Engine
	lost    *Lost
	reports Reports
}

// ListQueues implements admin.SchedulerServer.
func (s queues) ListQueues(
	_ context.Context, req *admin.ListQueuesRequest,
) (*admin.ListQueuesResponse, error) {
	branches := int(req.GetMaxBranches())
	if branches <= 0 || branches > MaxPage {
		branches = MaxPage
	}
	var queues []view.Queue
	var unmatched view.Queue
	s.Look(func(v *core.View) { queues, unmatched = v.QueueCounts(), v.Unmatched() })
	queues = queues[:min(len(queues), maxQueues)]
	for i := range queues {
		s.Look(func(v *core.View) { v.Fill(&queues[i], branches) })
	}
	resp := &admin.ListQueuesResponse{Unmatched: int64(unmatched.Queued), UnmatchedReason: unmatched.Why}
	resp.WorkersLost = s.lost.count()
	for _, v := range queues {
		q := &admin.Queue{
			InstanceNamePrefix: v.Prefix, Platform: properties(v.Platform), SizeClass: v.SizeClass,
			Workers: int32(v.Workers.All), Idle: int32(v.Workers.Idle), Busy: int32(v.Workers.Busy), Draining: int32(v.Workers.Draining),
			Resting: int32(v.Workers.Resting), Suspended: int32(v.Workers.Suspended),
			Executing: int32(v.Executing), Queued: int64(v.Queued), Root: branchMessage(v.Root),
		}
		slots := SlotsOf(v.Loads...)
		q.Slots, q.SlotsBusy, q.SlotsFree = int32(slots.All), int32(slots.Busy), int32(slots.Free)
		q.HeadReason = v.Why
		if v.Head != nil {
			q.HeadAction, q.HeadQueued = v.Head.Digest.String(), timestamppb.New(v.HeadSince)
			q.HeadOperation = v.Head.Name
		}
		resp.Queues = append(resp.Queues, q)
	}
	return resp, nil
}

func branchMessage(b view.Branch) *admin.Branch {
	m := &admin.Branch{Key: b.Key, Queued: int64(b.Queued), Running: int64(b.Running), Omitted: int64(b.Omitted), Why: b.Why, Due: b.Due}
	for _, child := range b.Children {
		m.Children = append(m.Children, branchMessage(child))
	}
	return m
}
