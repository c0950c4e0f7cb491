package sizes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/sizes/command"
	"github.com/forerunner-build/forerunner/bench/sizes/recording"
	"github.com/forerunner-build/forerunner/bench/sizes/streams"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// A commanded truth is the truth about a job that runs a simulated or a recorded command.
type commanded struct {
	p       *sizesParameters
	command streams.Command
	results map[uint32]command.Result
}

func (c *commanded) on(class uint32) command.Result {
	r, ok := c.results[class]
	if !ok {
		r = c.command.On(command.Machine{CPUs: int(class), MemoryMiB: c.p.MemoryMiB * float64(class)})
		c.results[class] = r
	}
	return r
}

func (c *commanded) took(class uint32) (time.Duration, sizeclass.Outcome) {
	r := c.on(class)
	outcome := map[command.End]sizeclass.Outcome{
		command.Done: sizeclass.Succeeded, command.Failed: sizeclass.Failed, command.Killed: sizeclass.OutOfMemory,
	}[r.End]
	return max(secondsOf(r.Seconds), time.Millisecond), outcome
}

func (c *commanded) run(class uint32, took time.Duration) sizeclass.Run {
	r := c.on(class)
	ran := min(took.Seconds()/max(r.Seconds, 0.001), 1)
	return sizeclass.Run{
		Duration: took, CPU: secondsOf(r.CPUSeconds * ran), CPUs: float64(class),
		MemoryLimitBytes: int64(c.p.MemoryMiB * float64(class) * (1 << 20)),
		PeakMemoryBytes:  int64(r.PeakMiB * (1 << 20)),
		MemoryStall:      secondsOf((r.StalledSeconds + r.FullSeconds) / 2 * ran),
		Throttled:        secondsOf(r.ContendedSeconds * ran),
	}
}

// with returns the parameters with the memory of a stream's machines.
func (p *sizesParameters) with(s streams.Stream) *sizesParameters {
	own := *p
	if s.MemoryMiB > 0 {
		own.MemoryMiB = s.MemoryMiB
	}
	return &own
}

// commandJobs returns the jobs of a stream with a seed.
func commandJobs(p *sizesParameters, s streams.Stream, seed uint64) (jobs []*simJob) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, j := range s.Jobs(seed) {
		id := binary.BigEndian.AppendUint64(nil, uint64(j.Action))
		a := sizeclass.Action{
			Reduced: digest.Of(digest.SHA256, id), Digest: digest.Of(digest.SHA256, append(id, 'x')), Timeout: 24 * time.Hour,
		}
		a.Mnemonic = j.Kind
		jobs = append(jobs, &simJob{
			action: a, arrives: start.Add(j.After),
			truth: &commanded{p: p, command: j.Command, results: map[uint32]command.Result{}},
		})
	}
	return jobs
}

// streamFigures are the means over the seeds of one stream.
type streamFigures struct {
	stream            streams.Stream
	rule, peer, ours  simFigure
	largest, smallest simFigure
}

// wantedStreams returns the streams with these names, or all if there are none.
func wantedStreams(names []string) ([]streams.Stream, error) {
	recorded, err := recording.Builtin()
	if err != nil {
		return nil, err
	}
	all := append(streams.All(), streams.Recorded(recorded)...)
	if len(names) == 0 {
		return all, nil
	}
	var wanted []streams.Stream
	for _, name := range names {
		i := slices.IndexFunc(all, func(s streams.Stream) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--streams: there is no stream %q", name)
		}
		wanted = append(wanted, all[i])
	}
	return wanted, nil
}

// benchStreams simulates the streams of simulated and of recorded commands.
func (o *sizesOptions) benchStreams(ctx context.Context, p *sizesParameters, w io.Writer) ([]report.Row, error) {
	wanted, err := wantedStreams(o.streams)
	if err != nil {
		return nil, err
	}
	var list []streamFigures
	for _, s := range wanted {
		f, p := streamFigures{stream: s}, p.with(s)
		for _, seed := range o.seeds {
			jobs := commandJobs(p, s, uint64(seed))
			figures, err := o.simulateAll(ctx, p, jobs, streams.JobsPerBuild, false)
			if err != nil {
				return nil, fmt.Errorf("stream %s: %w", s.Name, err)
			}
			for name, sum := range map[string]*simFigure{
				alwaysLargest: &f.largest, smallestFirst: &f.smallest, plainRule: &f.rule, thePeer: &f.peer, oursNow: &f.ours,
			} {
				sum.add(named(figures, name), 1/float64(len(o.seeds)))
			}
		}
		list = append(list, f)
	}
	return streamRows(list), printStreams(w, o.seeds, list)
}

// add adds a figure, weighted by share.
func (f *simFigure) add(other simFigure, share float64) {
	f.cost += share * other.cost
	f.wasted += share * other.wasted
	f.hedges += share * other.hedges
	f.half += share * other.half
	f.p95 += share * other.p95
	f.p99 += share * other.p99
	f.mean += share * other.mean
}

func printStreams(w io.Writer, seeds []int, list []streamFigures) error {
	table := [][]string{{"stream", "policy", "cost", "wasted", "hedging", "median", "mean", "p95", "p99"}}
	for _, s := range list {
		for _, policy := range []struct {
			name string
			f    simFigure
		}{{smallestFirst, s.smallest}, {plainRule, s.rule}, {thePeer, s.peer}, {oursNow, s.ours}} {
			f := policy.f
			table = append(table, []string{
				s.stream.Name, policy.name, share(f.cost), share(f.wasted), share(f.hedges / max(f.cost, 1e-9)),
				report.FormatValue(f.half), report.FormatValue(f.mean), report.FormatValue(f.p95), report.FormatValue(f.p99),
			})
		}
	}
	_, err := fmt.Fprintf(w, "streams of simulated and recorded commands, means of the seeds %v, as many workers as are needed\n\n", seeds)
	err = errors.Join(err, report.PrintTable(w, table))
	_, newline := fmt.Fprintln(w)
	return errors.Join(err, newline)
}

// streamRows returns the rows of sizes.json about streams of commands.
func streamRows(list []streamFigures) (rows []report.Row) {
	mean := 0.
	for _, s := range list {
		mean += s.ours.cost / float64(len(list))
		for _, by := range []struct {
			suffix string
			f      simFigure
		}{{"", s.ours}, {"_rule", s.rule}, {"_peer", s.peer}} {
			of := "_" + s.stream.Name + by.suffix
			cost, p95 := report.NewRow("cost"+of, by.f.cost, "ratio"), report.NewRow("p95"+of, by.f.p95, "ratio")
			p99 := report.NewRow("p99"+of, by.f.p99, "ratio")
			cost.Baseline, p95.Baseline, p99.Baseline = alwaysLargest, alwaysLargest, alwaysLargest
			cost.Note = fmt.Sprintf("%.3f of it wasted, %.3f by hedging", by.f.wasted/by.f.cost, by.f.hedges/by.f.cost)
			if by.suffix == "" {
				p95.Wanted = fmt.Sprintf("≤ %.3g", min(s.rule.p95, s.peer.p95))
				p95.Note = "the aim is the better one of rule and peer; " + s.stream.About
			}
			rows = append(rows, cost, p95, p99)
		}
	}
	cost := report.NewRow("cost_streams", mean, "ratio")
	cost.Wanted, cost.Baseline, cost.Note = "≤ 0.45", alwaysLargest, "mean of the streams"
	return append(rows, cost)
}
