package sizes

import (
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/sizes/recording"
	"github.com/forerunner-build/forerunner/bench/sizes/streams"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// smallSizes returns the built-in parameters with fewer builds.
func smallSizes(t *testing.T) *sizesParameters {
	t.Helper()
	p, err := readSizes("")
	if err != nil {
		t.Fatal(err)
	}
	p.Days, p.BuildsPerDay, p.FirstActions = 1, 12, 40
	return p
}

// TestSimulationAddsUp compares the simulation with facts that follow without one.
func TestSimulationAddsUp(t *testing.T) {
	p := smallSizes(t)
	jobs := p.jobs()
	if !reflect.DeepEqual(jobs, p.jobs()) {
		t.Fatal("the same parameters give other jobs")
	}
	cost := 0.0
	for _, j := range jobs {
		took, _ := j.took(p.largest())
		cost += took.Seconds() * float64(p.largest())
	}
	for _, bounded := range []bool{false, true} {
		for _, c := range simCases(p) {
			if c.spills || bounded && c.by == byPeer {
				continue
			}
			run := func() simResult {
				policy, err := c.policy(0.5, 1)
				if err != nil {
					t.Fatal(err)
				}
				return simulate(t.Context(), p, jobs, policy, bounded)
			}
			r := run()
			if !reflect.DeepEqual(r, run()) {
				t.Errorf("%s, bounded %t: two simulations differ", c.name, bounded)
			}
			if r.trained > 0 != (c.by == byPeer) {
				t.Errorf("%s: %d runs in the background", c.name, r.trained)
			}
			if r.runs != len(jobs)+r.again || r.wasted > r.cost {
				t.Errorf("%s, bounded %t: %d jobs, %d runs, %d of them again, cost %g, wasted %g",
					c.name, bounded, len(jobs), r.runs, r.again, r.cost, r.wasted)
			}
			if c.name == alwaysLargest && (r.cost < cost*0.999 || r.cost > cost*1.001 || r.again > 0) {
				t.Errorf("%s costs %g, want %g", c.name, r.cost, cost)
			}
			for i, j := range jobs {
				if least, _ := j.took(p.largest()); r.delays[i] < least && !j.truth.(*modelled).fails {
					t.Fatalf("%s: job %d is there after %s, less than it takes: %s", c.name, i, r.delays[i], least)
				}
			}
		}
	}
}

// crowd returns n jobs of 10 s that arrive at the same time, with a number of workers of each
// class.
func crowd(t *testing.T, n, workers int) (p *sizesParameters, jobs []*simJob) {
	t.Helper()
	p = smallSizes(t)
	for i := range p.Classes {
		p.Classes[i].Workers = workers
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range n {
		jobs = append(jobs, &simJob{
			arrives: start, action: sizeclass.Action{Timeout: time.Hour}, truth: &modelled{p: p, serial: 10, memory: 1},
		})
	}
	return p, jobs
}

func TestSimulatedWorkersAreBusyOneAtATime(t *testing.T) {
	p, jobs := crowd(t, 6, 2)
	r := simulate(t.Context(), p, jobs, simPolicy{simChooser: alwaysFirst(p.smallest())}, true)
	for i, d := range r.delays {
		if want := time.Duration(i/2+1) * 10 * time.Second; d != want {
			t.Errorf("job %d took %s, want %s", i, d, want)
		}
	}
}

func TestRowsNeverChange(t *testing.T) {
	type row struct {
		name  string
		value float64
	}
	for of, test := range map[string]struct {
		rows []report.Row
		want []row
	}{
		"sizes": {
			sizesRows([]simFigure{{name: plainRule, cost: 3, p95: 4}, {name: oursNow, cost: 1, p95: 2}, {name: thePeer, cost: 5, p95: 6}}),
			[]row{{"cost_over_largest", 1}, {"p95_slowdown", 2}, {"p95_slowdown_plain", 4}, {"cost_plain_over_largest", 3}, {"p95_slowdown_peer", 6}, {"cost_peer_over_largest", 5}},
		},
		"streams": {
			streamRows([]streamFigures{{
				stream: streams.Stream{Name: "a"}, ours: simFigure{cost: 1, p95: 2, p99: 3},
				rule: simFigure{cost: 4, p95: 5, p99: 6}, peer: simFigure{cost: 7, p95: 8, p99: 9},
			}, {stream: streams.Stream{Name: "b"}, ours: simFigure{cost: 3}}}),
			[]row{
				{"cost_a", 1},
				{"p95_a", 2},
				{"p99_a", 3},
				{"cost_a_rule", 4},
				{"p95_a_rule", 5},
				{"p99_a_rule", 6},
				{"cost_a_peer", 7},
				{"p95_a_peer", 8},
				{"p99_a_peer", 9},
				{"cost_b", 3},
				{"p95_b", 0},
				{"p99_b", 0},
				{"cost_b_rule", 0},
				{"p95_b_rule", 0},
				{"p99_b_rule", 0},
				{"cost_b_peer", 0},
				{"p95_b_peer", 0},
				{"p99_b_peer", 0},
				{"cost_streams", 2},
			},
		},
		"spills": {
			spillRows([]simFigure{{name: oursNow, p95Seconds: 1, makespan: 2}, {name: oursWaiting, p95Seconds: 3, makespan: 4}}),
			[]row{{"p95_delay_spill", 1}, {"p95_delay_no_spill", 3}, {"makespan_spill", 2}, {"makespan_no_spill", 4}},
		},
		"pools": {
			poolRows(simFigure{p95Seconds: 1, makespan: 2}, simFigure{p95Seconds: 3, makespan: 4}),
			[]row{
				{"p95_delay_pools_spill", 1},
				{"p95_delay_pools_no_spill", 3},
				{"makespan_pools_spill", 2},
				{"makespan_pools_no_spill", 4},
			},
		},
	} {
		var got []row
		for _, r := range test.rows {
			got = append(got, row{r.Name, *r.Value})
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", of, got, test.want)
		}
	}
}

// TestSimulatedWorkSpills checks that jobs that wait for the only small worker run on idle large
// ones.
func TestSimulatedWorkSpills(t *testing.T) {
	p, jobs := crowd(t, 8, 1)
	longest := func(spills float64) (longest time.Duration) {
		for _, d := range simulate(t.Context(), p, jobs, simPolicy{simChooser: alwaysFirst(p.smallest()), spills: spills}, true).delays {
			longest = max(longest, d)
		}
		return longest
	}
	if waited, spilled := longest(0), longest(0.5); waited != 80*time.Second || spilled > 30*time.Second {
		t.Errorf("eight jobs of 10 s take %s if they wait, %s if they do not", waited, spilled)
	}
}

// TestCommandsOnTheFarm checks that no job of a stream ends sooner than its command allows, and
// that the workers' reports describe the command.
func TestCommandsOnTheFarm(t *testing.T) {
	recorded, err := recording.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(streams.All()[:4], streams.Recorded(recorded)...) {
		p := smallSizes(t).with(s)
		jobs := commandJobs(p, s, 1)[:400]
		for _, c := range simCases(p) {
			policy, err := c.policy(0.5, 1)
			if err != nil {
				t.Fatal(err)
			}
			r := simulate(t.Context(), p, jobs, policy, false)
			for i, j := range jobs {
				least := time.Hour * 24
				for _, class := range p.Classes {
					took, outcome := j.took(class.Size)
					if outcome == sizeclass.Succeeded || class.Size == p.largest() {
						least = min(least, took)
					}
				}
				if r.delays[i] < least {
					t.Fatalf("%s, %s: job %d is there after %s, less than it takes: %s", s.Name, c.name, i, r.delays[i], least)
				}
			}
		}
		for _, j := range jobs {
			took, _ := j.took(1)
			of := j.truth.(*commanded).on(1)
			r := j.run(1, took/2)
			if (r.CPU-secondsOf(of.CPUSeconds/2)).Abs() > time.Millisecond ||
				r.MemoryStall > r.Duration || r.PeakMemoryBytes > r.MemoryLimitBytes || s.MemoryMiB > 0 && r.MemoryLimitBytes != int64(s.MemoryMiB)<<20 {
				t.Fatalf("%s: half of %+v is reported as %+v", s.Name, of, r)
			}
		}
	}
}

// TestSimulatedPools checks that builds that fit two pools move to idle workers of the other one,
// and that they wait if a move is never worth it.
func TestSimulatedPools(t *testing.T) {
	p := smallSizes(t)
	jobs := p.jobs()
	run := func(exponent float64) simResult {
		r, err := simulatePools(t.Context(), p, jobs, exponent)
		if err != nil {
			t.Fatal(err)
		}
		for i, j := range jobs {
			if took, _ := j.took(p.largest()); r.delays[i] < took {
				t.Fatalf("job %d is there after %s, less than it takes: %s", i, r.delays[i], took)
			}
		}
		return r
	}
	with, without := run(0.5), run(settledExponent)
	if !reflect.DeepEqual(with, run(0.5)) {
		t.Error("two simulations differ")
	}
	mean := func(r simResult) float64 { return figureOf("", r, r, p.ActionsPerBuild).makespan }
	if with.spilled == 0 || without.spilled > 0 || mean(with) >= mean(without) {
		t.Errorf("%d jobs move, a build takes %g s; %d do otherwise, %g s", with.spilled, mean(with), without.spilled, mean(without))
	}
}

func TestPlotIsXML(t *testing.T) {
	text := plotSVG([]plotLine{{name: "a", color: "#000", points: []plotPoint{{0.5, 2, "x=0.5"}, {0.7, 1.5, "x=0.2"}}}})
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestWantedStreams(t *testing.T) {
	all, err := wantedStreams(nil)
	if err != nil || len(all) < 12 {
		t.Fatalf("%d streams, %v", len(all), err)
	}
	got, err := wantedStreams([]string{"recorded_new", "tails"})
	if err != nil || len(got) != 2 || got[0].Name != "recorded_new" || got[1].Name != "tails" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := wantedStreams([]string{"heads"}); err == nil || !strings.Contains(err.Error(), `no stream "heads"`) {
		t.Errorf("an unknown stream: %v", err)
	}
}
