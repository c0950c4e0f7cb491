package orphan

import (
	"slices"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// ofInstance serves the operations of one instance name.
type ofInstance string

func (i ofInstance) Serves(op *request.Operation) bool { return op.Instance == string(i) }

func TestResults(t *testing.T) {
	start := time.Unix(1e9, 0)
	clock := &timer.Clock{Now: start}
	rs := New(clock, time.Minute, 3)
	key := func(text string) request.Key { return request.KeyOf(digest.Of(digest.SHA256, []byte(text))) }
	add := func(action, instance string) *Result {
		clock.Now = clock.Now.Add(time.Second)
		r := &Result{Action: request.Ran{Key: key(action)}, Pool: ofInstance(instance)}
		rs.Add(r)
		return r
	}
	find := func(action, instance string) *Result {
		return rs.Find(&request.Operation{Instance: instance}, key(action))
	}
	first, second, other := add("a", "x"), add("a", "x"), add("a", "y")
	if find("a", "x") != second || find("a", "y") != other || find("a", "z") != nil || find("b", "x") != nil {
		t.Error("found another result than the latest")
	}
	if !first.Kept().Equal(start.Add(time.Second)) || !rs.Until(first).Equal(start.Add(time.Second+time.Minute)) {
		t.Errorf("kept from %s until %s", first.Kept(), rs.Until(first))
	}
	last := add("b", "x")
	if got := slices.Collect(rs.All()); !slices.Equal(got, []*Result{second, other, last}) || rs.Actions() != 2 {
		t.Errorf("kept are %v of %d actions", got, rs.Actions())
	}
	clock.Now = start.Add(2*time.Second + time.Minute)
	due := clock.Timers.PopDue(clock.Now)
	if due == nil || due.Owner != second {
		t.Fatalf("due is %v", due)
	}
	rs.Remove(second)
	if find("a", "x") != nil || clock.Timers.PopDue(clock.Now) != nil || rs.Check() != "" {
		t.Errorf("a result that was removed is there; %s", rs.Check())
	}
	delete(rs.byAction, key("b"))
	if rs.Check() == "" {
		t.Error("a result of no action passes")
	}
}
