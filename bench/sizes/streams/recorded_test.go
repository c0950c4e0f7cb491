package streams

import (
	"math"
	"reflect"
	"testing"

	"github.com/forerunner-build/forerunner/bench/sizes/command"
	"github.com/forerunner-build/forerunner/bench/sizes/recording"
)

// small returns a recording of two commands: one that has four threads and one that needs 2 CPUs'
// memory.
func small(t *testing.T) *recording.Recording {
	t.Helper()
	var runs []recording.Run
	for round, by := range map[int]float64{1: 1, 2: 1.04, 3: 1.1} {
		for i, cpus := range []int{1, 2, 8} {
			wide := recording.Run{Kind: "Bundle", Target: "a", Round: round, CPUs: cpus, MemoryMiB: float64(100 * cpus), End: recording.Done}
			wide.Seconds, wide.CPUSeconds, wide.PeakMiB = by*[]float64{8, 4, 2}[i], by*8, 50
			hungry := wide
			hungry.Target, hungry.Seconds, hungry.PeakMiB = "b", 3*by, 150
			if cpus == 1 {
				hungry.End, hungry.Seconds, hungry.PeakMiB, hungry.StalledSeconds = recording.Killed, 1, 100, 0.5
			}
			runs = append(runs, wide, hungry)
		}
	}
	r, err := recording.New(runs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPlayedCommands(t *testing.T) {
	r := small(t)
	wide, hungry := played{runs: r.Commands[0].Rounds[0], factor: 1}, played{runs: r.Commands[1].Rounds[0], factor: 2}
	failing := wide
	failing.fails = 0.25
	for of, test := range map[string]struct {
		command played
		cpus    int
		end     command.End
		seconds float64
	}{
		"recorded":               {wide, 2, command.Done, 4},
		"between 2 and 8":        {wide, 4, command.Done, math.Sqrt(8)},
		"more than recorded":     {wide, 16, command.Done, 2},
		"fails":                  {failing, 2, command.Failed, 1},
		"out of memory":          {hungry, 1, command.Killed, 2},
		"enough memory":          {hungry, 2, command.Done, 6},
		"enough memory, between": {hungry, 4, command.Done, 6},
	} {
		got := test.command.On(command.Machine{CPUs: test.cpus})
		if got.End != test.end || math.Abs(got.Seconds-test.seconds) > 1e-9 {
			t.Errorf("%s: %+v, want %v after %g s", of, got, test.end, test.seconds)
		}
	}
	if got := hungry.On(command.Machine{CPUs: 1}); got.StalledSeconds != 1 || got.PeakMiB != 100 {
		t.Errorf("twice the work stalls twice as long with the same memory: %+v", got)
	}
}

// TestOutOfMemoryBetween checks that a size between one that is out of memory and one that is not is
// like the larger one.
func TestOutOfMemoryBetween(t *testing.T) {
	runs := small(t).Commands[1].Rounds[0]
	if got := (played{runs: []recording.Run{runs[0], runs[2]}, factor: 1}).On(command.Machine{CPUs: 4}); got.End != command.Done || got.Seconds != 3 {
		t.Errorf("%+v", got)
	}
}

func TestRecordedBuilds(t *testing.T) {
	r := small(t)
	for _, s := range Recorded(r) {
		jobs := s.Jobs(1)
		if !reflect.DeepEqual(jobs, s.Jobs(1)) {
			t.Errorf("%s: the same seed gives other jobs", s.Name)
		}
		if reflect.DeepEqual(jobs, s.Jobs(2)) {
			t.Errorf("%s: another seed gives the same jobs", s.Name)
		}
		most, failing, seconds := 0, 0, map[float64]bool{}
		for i, j := range jobs {
			most = max(most, j.Action)
			if i > 0 && j.After < jobs[i-1].After {
				t.Fatalf("%s: job %d comes before the one before", s.Name, i)
			}
			got := j.Command.On(command.Machine{CPUs: 8})
			if (got.End == command.Failed) != j.Fails || got.End == command.Killed {
				t.Fatalf("%s: %+v ends as %+v", s.Name, j, got)
			}
			if j.Fails {
				failing++
			} else if j.Action == 0 {
				seconds[got.Seconds] = true
			}
			if s.new == 0 && (got.Seconds > 3.3*mostDrift || !j.Fails && got.Seconds < 2/mostDrift) {
				t.Fatalf("%s: %+v takes %g s", s.Name, j, got.Seconds)
			}
		}
		if days := jobs[len(jobs)-1].After.Hours() / 24; days < 2 || days > 6 {
			t.Errorf("%s: %g days", s.Name, days)
		}
		if failing == 0 || failing > len(jobs)/15 || len(seconds) < 5 {
			t.Errorf("%s: %d of %d jobs fail, an action has %d durations", s.Name, failing, len(jobs), len(seconds))
		}
		if s.new == 0 && most != 1 || s.new > 0 && (most < len(jobs)/15 || most > len(jobs)/7) {
			t.Errorf("%s: %d jobs of %d actions", s.Name, len(jobs), most+1)
		}
	}
}
