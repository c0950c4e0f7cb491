package core

import (
	"strings"
	"testing"
)

// TestWaitsFor sees what is said of operations that wait, and of their queues.
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
