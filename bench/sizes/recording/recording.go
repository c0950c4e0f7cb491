package recording

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// End is how a command ended.
type End string

// All ends of a command.
const (
	Done   End = "done"
	Failed End = "failed"
	Killed End = "killed"
)

// A Run is one command on one machine.
type Run struct {
	Kind, Target string
	Round        int // from 1
	CPUs         int
	MemoryMiB    float64
	End          End

	Seconds, CPUSeconds, ThrottledSeconds, StalledSeconds float64
	PeakMiB                                               float64
}

// A Command is a command that ran on all machines, in several rounds.
type Command struct {
	Kind, Target string
	// Rounds have the runs of each round, with ascending CPUs.
	Rounds [][]Run
}

// A Recording has commands on the same machines.
type Recording struct {
	Commands []Command
	// CPUs are those of the machines, ascending. MemoryMiB is for each CPU.
	CPUs      []int
	MemoryMiB float64
}

var columns = []string{
	"kind", "target", "round", "cpus", "memory_mib", "end", "seconds", "cpu_s", "throttled_s", "stalled_s", "peak_mib",
}

//go:embed recorded.csv
var recorded []byte

// Builtin returns the recording that is checked in. The caller must not change it.
var Builtin = sync.OnceValues(func() (*Recording, error) {
	runs, err := Read(bytes.NewReader(recorded))
	if err != nil {
		return nil, fmt.Errorf("built-in recording: %w", err)
	}
	return New(runs)
})

// Read reads runs. Its errors name the line.
func Read(r io.Reader) (runs []Run, err error) {
	c := csv.NewReader(r)
	c.Comment, c.FieldsPerRecord, c.ReuseRecord = '#', len(columns), true
	head, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("read recording: it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	if !slices.Equal(head, columns) {
		return nil, fmt.Errorf("read recording: the columns are %q, want %q", head, columns)
	}
	for {
		fields, err := c.Read()
		if errors.Is(err, io.EOF) {
			return runs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read recording: %w", err)
		}
		run, err := parse(fields)
		if err != nil {
			line, _ := c.FieldPos(0)
			return nil, fmt.Errorf("read recording: line %d: %w", line, err)
		}
		runs = append(runs, run)
	}
}

// parse returns the run of a line.
func parse(fields []string) (run Run, err error) {
	run = Run{Kind: strings.Clone(fields[0]), Target: strings.Clone(fields[1]), End: End(strings.Clone(fields[5]))}
	if run.Kind == "" || run.Target == "" {
		return run, errors.New("kind and target must not be empty")
	}
	if run.End != Done && run.End != Failed && run.End != Killed {
		return run, fmt.Errorf("end is %q, want %s, %s or %s", run.End, Done, Failed, Killed)
	}
	for i, to := range map[int]*int{2: &run.Round, 3: &run.CPUs} {
		if *to, err = strconv.Atoi(fields[i]); err != nil || *to < 1 {
			return run, fmt.Errorf("%s is %q, want a positive integer", columns[i], fields[i])
		}
	}
	for i, to := range map[int]*float64{
		4: &run.MemoryMiB, 6: &run.Seconds, 7: &run.CPUSeconds, 8: &run.ThrottledSeconds, 9: &run.StalledSeconds, 10: &run.PeakMiB,
	} {
		if *to, err = strconv.ParseFloat(fields[i], 64); err != nil || !(*to >= 0) || math.IsInf(*to, 0) {
			return run, fmt.Errorf("%s is %q, want a number of at least 0", columns[i], fields[i])
		}
	}
	if run.MemoryMiB == 0 || run.Seconds == 0 {
		return run, errors.New("memory_mib and seconds must not be 0")
	}
	return run, nil
}

// New groups runs by command, in order of kind and target. It returns an error unless each round has
// one run on each machine.
func New(runs []Run) (*Recording, error) {
	if len(runs) == 0 {
		return nil, errors.New("recording without runs")
	}
	r := &Recording{MemoryMiB: runs[0].MemoryMiB / float64(runs[0].CPUs)}
	for _, run := range runs {
		if !slices.Contains(r.CPUs, run.CPUs) {
			r.CPUs = append(r.CPUs, run.CPUs)
		}
	}
	slices.Sort(r.CPUs)
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, Run.compare)
	for len(runs) > 0 {
		n := min(len(r.CPUs), len(runs))
		round := runs[:n:n]
		if err := r.check(round); err != nil {
			return nil, err
		}
		runs = runs[n:]
		if i := len(r.Commands) - 1; i >= 0 && r.Commands[i].Kind == round[0].Kind && r.Commands[i].Target == round[0].Target {
			r.Commands[i].Rounds = append(r.Commands[i].Rounds, round)
			continue
		}
		r.Commands = append(r.Commands, Command{Kind: round[0].Kind, Target: round[0].Target, Rounds: [][]Run{round}})
	}
	return r, nil
}

// check returns an error unless round has the runs of one round.
func (r *Recording) check(round []Run) error {
	first := round[0]
	for i, cpus := range r.CPUs {
		if i >= len(round) || round[i].CPUs != cpus || round[i].Round != first.Round || round[i].Kind != first.Kind || round[i].Target != first.Target {
			return fmt.Errorf("recording: round %d of %s %s does not have one run on each of %d CPUs", first.Round, first.Kind, first.Target, r.CPUs)
		}
		if of := round[i].MemoryMiB / float64(cpus); of != r.MemoryMiB {
			return fmt.Errorf("recording: round %d of %s %s has %g MiB for each of %d CPUs, others have %g", first.Round, first.Kind, first.Target, of, cpus, r.MemoryMiB)
		}
	}
	if last := round[len(round)-1]; last.End != Done {
		return fmt.Errorf("recording: round %d of %s %s is not done on %d CPUs: %s", last.Round, last.Kind, last.Target, last.CPUs, last.End)
	}
	return nil
}
