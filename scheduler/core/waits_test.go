package core

import (
	"strings"
	"testing"
)

// TestWaitsFor checks the explanations for waiting operations and their queues.
func TestWaitsFor(t *testing.T) {
	h := &history{t: t, calls: map[uint64]string{}, actions: map[string]string{}}
	for _, event := range []string{
		"config level=user level=tool_invocation_id",
		"0s sync small idle class=1", "0s sync w1 idle class=4", "0s sync w2 idle class=4",
		"0s submit a1 a1 user=ann invocation=x", "0s submit a2 a2 user=ann invocation=x",
		"1s submit b1 b1 user=bob invocation=y", "1s submit b2 b2 user=bob invocation=y", "1s submit c1 c1 platform=OS=plan9",
	} {
		h.run(strings.Fields(event))
	}
	for name, want := range map[string]string{
		"a1": "",
		"b1": "all 2 workers that take work are busy; 1 worker of smaller classes is idle, but it needs class 4: " +
			"actions start on the largest class unless their runs speak for another",
		"b2":  "; next of the 2 that wait is b1 of invocation y",
		"c1":  "no worker has OS=plan9",
		"foo": "",
	} {
		if got := h.state.View().WaitsFor(name); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s waits for %q, want %q", name, got, want)
		}
	}
	queues := queuesOf(h.state, 10)
	if q := queues[1]; !strings.HasSuffix(q.Why, "; 100 % of the running actions belong to ann › x") {
		t.Errorf("the head of class %d waits because %s", q.SizeClass, q.Why)
	}
}

// TestWaitsForOthers checks the explanation for an operation that a worker could not run.
func TestWaitsForOthers(t *testing.T) {
	h := &history{t: t, calls: map[uint64]string{}, actions: map[string]string{}}
	for _, event := range []string{
		"0s sync a1 idle of=a class=1", "0s submit op1 x1 size=1,1h", "0s sync b1 idle of=b class=1", "0s submit op2 x2 size=1,1h",
		"1s sync a1 completed x1 of=a class=1 error=EIO", "3s sync a1 idle of=a class=1",
	} {
		h.run(strings.Fields(event))
	}
	want := "the only other worker that takes work is busy; an earlier run on worker a1 ended with Unavailable: EIO, " +
		"so it waits for other workers for another 8s"
	if got := h.state.View().WaitsFor("op1"); got != want {
		t.Errorf("it waits for %q, want %q", got, want)
	}
	if got := queuesOf(h.state, 0)[0].Why; got != want {
		t.Errorf("the head waits for %q, want %q", got, want)
	}
	h.run(strings.Fields("4s drain host=b"))
	if got := h.state.View().WaitsFor("op1"); !strings.HasPrefix(got, "no other worker takes more work for the moment; 1 more is drained; ") {
		t.Errorf("while others are drained it waits for %q", got)
	}
}
