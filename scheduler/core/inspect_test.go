package core

import (
	"fmt"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// TestOperationAttributes has an operation that runs have all that patterns may name.
func TestOperationAttributes(t *testing.T) {
	e := view.Entry{Operation: &request.Operation{}, Worker: `{"data":"/d","host":"a","position":"3"}`}
	for _, name := range pattern.OperationAttributes() {
		if _, ok := e.Attribute(name); !ok {
			t.Errorf("no operation has %s", name)
		}
	}
	if got, _ := e.Attribute("worker"); got != "data=/d,host=a" {
		t.Errorf("the worker is %s, which no list shows", got)
	}
}

// TestBranches sees that a queue is listed by its keys, the busiest first, and that
// a long list is cut where the least is lost.
func TestBranches(t *testing.T) {
	h := &history{t: t, calls: map[uint64]string{}, actions: map[string]string{}}
	for _, event := range []string{
		"config level=user level=tool_invocation_id",
		"0s sync w1 idle class=4", "0s submit a1 a1 user=ann invocation=x",
		"1s submit b1 b1 user=bob invocation=y",
		"1s submit b2 b2 user=bob invocation=z", "1s submit b3 b3 user=bob invocation=z",
		"2s submit c1 c1 user=carl invocation=v", "2s submit a2 b1 user=ann invocation=x",
	} {
		h.run(strings.Fields(event))
	}
	for _, test := range []struct {
		atMost int
		want   string
	}{
		{100, "4/1 [bob 3/0 [z 2/0 [] y 1/0 []] ann 1/4 [x 1/4 []] carl 1/0 [v 1/0 []]]"},
		{3, "4/1 [bob 3/0 [2 more] ann 1/4 [1 more] carl 1/0 [1 more]]"},
		{2, "4/1 [bob 3/0 [2 more] ann 1/4 [1 more] 1 more]"},
		{0, "4/1 [3 more]"},
	} {
		queues := queuesOf(h.state, test.atMost)
		if got := strings.TrimSpace(branchText(queues[0].Root)); got != test.want {
			t.Errorf("of at most %d: %s, want %s", test.atMost, got, test.want)
		}
		if q := queues[0]; q.Head.Name != "b1" || !strings.HasPrefix(q.Why, "the only worker that takes work is busy") {
			t.Errorf("%s is next, and waits because %s", q.Head.Name, q.Why)
		}
	}
}

func branchText(b view.Branch) string {
	parts := []string{}
	for _, child := range b.Children {
		parts = append(parts, branchText(child))
	}
	if b.Omitted > 0 {
		parts = append(parts, fmt.Sprintf("%d more", b.Omitted))
	}
	return fmt.Sprintf("%s %d/%d %v", b.Key, b.Queued, b.Running, parts)
}

// TestBusiestOfMany: with very many branches, the list must have those that would come first in the
// complete list.
func TestBusiestOfMany(t *testing.T) {
	const invocations = 200
	state := must(NewState(tuning.Config{Queues: []levels.QueueConfig{
		{Levels: []levels.Level{{Key: levels.KeyToolInvocation}}},
	}}))
	state.Step(epoch, &event.Report{
		Call: 1, Worker: "w",
		Platform: request.NewPlatform(platformX()), Doing: event.Executing,
	})
	made := 0
	for i := range invocations {
		for range i*37%11 + 1 {
			made++
			name := fmt.Sprint(made)
			state.Step(epoch, event.Submit{Operation: &request.Operation{
				Name: name, Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{},
				Platform: request.NewPlatform(platformX()), Request: request.Metadata{ToolInvocation: fmt.Sprint(i)},
			}})
		}
	}
	all := queuesOf(state, 1000)
	root := all[0].Root
	for _, atMost := range []int{0, 1, 10, 150, 199, invocations} {
		some := queuesOf(state, atMost)
		want := branchText(view.Branch{Queued: root.Queued, Children: root.Children[:atMost], Omitted: invocations - atMost})
		if got := branchText(some[0].Root); got != want {
			t.Errorf("of at most %d: %s, want %s", atMost, got, want)
		}
	}
}

// queuesOf returns the state of all queues.
func queuesOf(s *State, branches int) []view.Queue {
	queues := s.View().QueueCounts()
	for i := range queues {
		s.View().Fill(&queues[i], branches)
	}
	return queues
}
