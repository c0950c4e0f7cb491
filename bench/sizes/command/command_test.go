package command

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func machine(cpus int) Machine { return Machine{CPUs: cpus, MemoryMiB: 4096 * float64(cpus)} }

// expectSeconds fails the test unless a command takes that long.
func expectSeconds(t *testing.T, of string, c Command, m Machine, want float64) Result {
	t.Helper()
	r := c.On(m)
	if r.End != Done || math.Abs(r.Seconds-want) > want/1e6 {
		t.Errorf("%s on %+v: %+v, want %g s", of, m, r, want)
	}
	return r
}

func TestThreads(t *testing.T) {
	four := []float64{6, 2, 2, 2}
	for of, test := range map[string]struct {
		command Command
		on      map[int]float64
	}{
		"one thread":    {Command{Phases: []Phase{{Tasks: four, Threads: 1}}}, map[int]float64{1: 12, 8: 12}},
		"as many":       {Command{Phases: []Phase{{Tasks: four}}}, map[int]float64{1: 12, 2: 6, 8: 6}},
		"the long last": {Command{Phases: []Phase{{Tasks: []float64{2, 2, 2, 6}}}}, map[int]float64{2: 8, 4: 6}},
		// Two threads on one CPU lose 2 % until only the long task is left.
		"two threads": {Command{Phases: []Phase{{Tasks: four, Threads: 2}}}, map[int]float64{1: 12 / 0.98, 2: 6, 8: 6}},
		"waits":       {Command{Phases: []Phase{{WaitSeconds: 3}, {Tasks: four}}}, map[int]float64{1: 15, 2: 9}},
	} {
		for cpus, want := range test.on {
			if r := expectSeconds(t, of, test.command, machine(cpus), want); math.Abs(r.CPUSeconds-12) > 1e-6 {
				t.Errorf("%s on %d CPUs uses %g CPU seconds", of, cpus, r.CPUSeconds)
			}
		}
	}
}

// TestHeap has a heap that is large enough everywhere. It collects more often on machines with less
// memory.
func TestHeap(t *testing.T) {
	c := Command{
		Phases: []Phase{{Tasks: []float64{10, 10}, Threads: 1, AllocMiB: 500}},
		Heap:   Heap{LiveMiB: 600, Share: 0.25},
	}
	small, large := c.On(machine(1)), c.On(machine(8))
	if small.End != Done || small.CPUSeconds < large.CPUSeconds+2 || small.PeakMiB > 1025 || large.PeakMiB < 8000 {
		t.Errorf("small %+v, large %+v", small, large)
	}
	c.Heap.LiveMiB = 1100
	if r := c.On(machine(1)); r.End != Failed {
		t.Errorf("a heap that is too small: %+v", r)
	}
	c.Heap.MostMiB = 4000
	if r := c.On(machine(8)); r.End != Done || r.PeakMiB > 4001 {
		t.Errorf("a heap with a limit: %+v", r)
	}
}

// TestPressure has files that do not fit into memory, which are read again and again, and resident
// memory that does not fit, which kills the command.
func TestPressure(t *testing.T) {
	c := Command{
		Phases:      []Phase{{Tasks: []float64{10}, Threads: 1, TouchMiB: 1000}},
		ResidentMiB: 3096, FilesMiB: 2000,
	}
	// Half of 1,000 MiB per second come from the disk: 2 s for each second of work.
	r := expectSeconds(t, "files that do not fit", c, machine(1), 30)
	if math.Abs(r.StalledSeconds-20) > 1e-6 || r.FullSeconds != r.StalledSeconds || r.PeakMiB != 4096 {
		t.Errorf("%+v", r)
	}
	if r := expectSeconds(t, "files that fit", c, machine(2), 10); r.StalledSeconds != 0 || r.PeakMiB != 5096 {
		t.Errorf("%+v", r)
	}
	c.Warm = true
	for cpus, want := range map[int]float64{1: 4096, 2: 3096} {
		if r := c.On(machine(cpus)); r.PeakMiB != want {
			t.Errorf("warm files on %d CPUs: %+v", cpus, r)
		}
	}
	c.ResidentMiB = 4090
	if r := c.On(machine(1)); r.End != Killed {
		t.Errorf("%+v", r)
	}
}

func TestFails(t *testing.T) {
	c := Command{Phases: []Phase{{Tasks: []float64{1, 1, 1, 1}, Threads: 1}}, Fails: 0.375}
	if r := c.On(machine(1)); r.End != Failed || math.Abs(r.Seconds-1.5) > 1e-6 {
		t.Errorf("%+v", r)
	}
}

// TestMoreIsNeverSlower compares random commands with bounds that follow without a simulation.
func TestMoreIsNeverSlower(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	for i := range 300 {
		c := Command{ResidentMiB: random.Float64() * 3000, FilesMiB: random.Float64() * 5000}
		work, longest := 0., 0.
		for range 1 + random.IntN(3) {
			phase := Phase{Threads: random.IntN(5), TouchMiB: random.Float64() * 100}
			for range 1 + random.IntN(20) {
				phase.Tasks = append(phase.Tasks, random.ExpFloat64())
			}
			for _, task := range phase.Tasks {
				work += task
			}
			longest += slices.Max(phase.Tasks)
			c.Phases = append(c.Phases, phase)
		}
		before := math.Inf(1)
		for _, cpus := range []int{1, 2, 4, 8} {
			r := c.On(machine(cpus))
			least := max(work/float64(cpus), longest)
			if r.End != Done || math.Abs(r.CPUSeconds-work) > 1e-6 || r.Seconds < least-1e-6 || r.Seconds > before*1.5+1e-6 {
				t.Fatalf("%d: on %d CPUs %+v of %g CPU seconds, at least %g s, before %g s: %+v", i, cpus, r, work, least, before, c)
			}
			before = r.Seconds
		}
	}
}
