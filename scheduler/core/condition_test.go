package core

import (
	"slices"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// TestProgramsAreCounted has two positions of one worker, and one of another, in each state. The
// counts must be of workers, not of positions.
func TestProgramsAreCounted(t *testing.T) {
	const two = "0s sync a1 idle of=a; 0s sync a2 idle of=a; 0s sync b1 idle of=b"
	for _, test := range []struct {
		name, events string
		want         view.Workers
		executing    int
		serve        int
		waits        string // the begin of why the first action does so
	}{
		{"idle", two, view.Workers{All: 2, Idle: 2}, 0, 2, ""},
		{
			"one rests, and one takes work", "0s sync a1 idle drain of=a; 0s sync a2 idle of=a; 0s sync b1 idle of=b",
			view.Workers{All: 2, Idle: 2},
			0, 2, "",
		},
		{
			"all rest", "0s sync a1 idle drain of=a; 0s sync a2 idle drain of=a; 0s sync b1 idle of=b",
			view.Workers{All: 2, Idle: 1, Resting: 1},
			0, 1, "",
		},
		{"one is busy", "0s sync a1 idle of=a; 0s sync a2 idle of=a; 0s submit op1 x1", view.Workers{All: 1, Busy: 1}, 1, 1, ""},
		{
			"all are busy", two + "; 0s submit op1 x1; 0s submit op2 x2; 0s submit op3 x3; 0s submit op4 x4",
			view.Workers{All: 2, Busy: 2},
			3, 2, "all 2 workers that take work are busy",
		},
		{"drained", two + "; 0s drain host=a", view.Workers{All: 2, Idle: 1, Draining: 1}, 0, 1, ""},
		{
			"drained with an action", "0s sync a1 idle of=a; 0s sync a2 idle of=a; 0s submit op1 x1; 0s drain host=a; 0s submit op2 x2",
			view.Workers{All: 1, Draining: 1},
			1, 0, "the only worker is drained",
		},
		{
			"leaves", "0s sync a1 idle of=a; 0s submit op1 x1; 1s sync a1 executing x1 drain of=a; 1s sync a2 idle drain of=a",
			view.Workers{All: 1, Draining: 1},
			1, 0, "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &history{t: t, calls: map[uint64]string{}, actions: map[string]string{}}
			for line := range strings.SplitSeq("config; "+test.events, "; ") {
				h.run(strings.Fields(line))
			}
			queues := queuesOf(h.state, 10)
			q := queues[0]
			serve := 0
			for _, l := range q.Loads {
				if l.Serves {
					serve++
				}
			}
			if len(queues) != 1 || q.Workers != test.want || q.Executing != test.executing || serve != test.serve {
				t.Errorf("%d queues: %+v, %d executing, %d serve; want %+v, %d, %d", len(queues), q.Workers, q.Executing, serve, test.want, test.executing, test.serve)
			}
			if !strings.HasPrefix(q.Why, test.waits) || (q.Why == "") != (test.waits == "") {
				t.Errorf("the first waits because %q, want %q", q.Why, test.waits)
			}
			if n := q.Workers; n.Idle+n.Busy+n.Draining+n.Resting+n.Suspended != n.All {
				t.Errorf("%+v does not sum up", n)
			}
		})
	}
}

// TestProgramOfPositions views a worker with all its positions, and finds it by each of them.
func TestProgramOfPositions(t *testing.T) {
	h := &history{t: t, calls: map[uint64]string{}, actions: map[string]string{}}
	for _, line := range []string{
		"config", "0s sync a1 idle of=a", "0s sync a2 idle of=a", "0s sync a3 idle drain of=a", "0s sync c1 idle of=c prefix=acme",
		"1s submit op1 x1", "2s submit op2 x2",
	} {
		h.run(strings.Fields(line))
	}
	v := h.state.View()
	programs := v.Programs(nil)
	if len(programs) != 2 || programs[`acme/{"host":"c"}`] != "c1" || !slices.Contains([]string{"a1", "a2", "a3"}, programs[`{"host":"a"}`]) {
		t.Fatalf("programs %v", programs)
	}
	p := h.pattern("position=a2")
	if one := v.Programs(&p); len(one) != 1 || one[`{"host":"a"}`] != "a2" {
		t.Errorf("of position a2: %v", one)
	}
	got, ok := v.Program("a3")
	if !ok || got.Condition != view.IsExecuting || got.Load.Actions != 2 || got.Load.Positions != 3 || len(got.ID) != 1 {
		t.Errorf("%+v, %t", got, ok)
	}
	for i, want := range []view.Condition{view.IsExecuting, view.IsExecuting, view.IsResting} {
		if p := got.Positions[i]; p.Condition != want || (p.Action != "") != (want == view.IsExecuting) {
			t.Errorf("position %d: %+v, want condition %d", i, p, want)
		}
	}
	if _, ok := v.Program("nobody"); ok {
		t.Error("a worker is known that never called")
	}
}
