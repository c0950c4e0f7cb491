package sizes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/sizes/peer"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

type sizesOptions struct {
	parameters, out, plot string
	exponent              float64
	seeds                 []int // of the streams of commands
	only                  bool  // simulate only these streams
	streams               []string
}

// NewCommand returns the subcommand of this benchmark.
func NewCommand() *cobra.Command {
	o := &sizesOptions{}
	cmd := &cobra.Command{
		Use: "sizes", Short: "simulate the choice of size classes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return benchSizes(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	cmd.AddCommand(newRecordCommand())
	f := cmd.Flags()
	f.StringVar(&o.parameters, "parameters", "", "JSON `file` with the stream of actions and the workers (default cmd/bench/sizes.json, built in)")
	f.StringVar(&o.out, "out", "build/bench", "`folder` for the JSON report")
	f.StringVar(&o.plot, "plot", "", "SVG `file` to draw cost and delay to")
	f.Float64Var(&o.exponent, "exponent", 0.5, "exponent, 0 to 1: on a smaller class an action may take the ratio of the sizes to this power times as long")
	f.IntSliceVar(&o.seeds, "seeds", []int{11, 12, 13, 14}, "seeds of the streams of simulated and recorded commands; the analyzer's constants were chosen on 1, 2 and 3")
	f.BoolVar(&o.only, "only-commands", false, "simulate only the streams of simulated and recorded commands")
	f.StringSliceVar(&o.streams, "streams", nil, "comma-separated `names` of the streams of commands to simulate, for example recorded_clean (default all)")
	return cmd
}

// A simCase is a named policy.
type simCase struct {
	name  string
	by    analyzer
	first uint32 // class on which actions start if nothing chooses it
	// spills enables spilling to idle workers of larger classes.
	spills bool
}

// An analyzer is what chooses the class on which an action starts.
type analyzer uint8

const (
	byNothing analyzer = iota
	byOurs             // a sizeclass.Analyzer
	byRule             // one that knows only the plain rule
	byPeer             // the peer's, which is simulated only with an unlimited number of workers
)

// The names of policies that have rows.
const (
	alwaysLargest = "always largest"
	smallestFirst = "smallest, then largest"
	plainRule     = "plain rule"
	oursNow       = "ours"
	oursWaiting   = "ours, nothing spills"
	thePeer       = "peer"
)

// simCases returns the policies.
func simCases(p *sizesParameters) []simCase {
	return []simCase{
		{name: alwaysLargest, first: p.largest()},
		{name: smallestFirst, first: p.smallest()},
		{name: plainRule, by: byRule},
		{name: oursNow, by: byOurs, spills: true},
		{name: oursWaiting, by: byOurs},
		{name: thePeer, by: byPeer},
	}
}

// policy returns a new policy without records.
func (c simCase) policy(exponent float64, seed uint64) (simPolicy, error) {
	switch c.by {
	case byPeer:
		return simPolicy{simChooser: ofPeer{peer.New(exponent, seed)}}, nil
	case byNothing:
		return simPolicy{simChooser: alwaysFirst(c.first)}, nil
	}
	a, err := sizeclass.NewAnalyzer(records.NewMemory(1<<30), sizeclass.Options{
		Exponent: exponent, Plain: c.by == byRule, Seed: seed,
	})
	policy := simPolicy{simChooser: learned{a}}
	if c.spills {
		policy.spills = exponent
	}
	return policy, err
}

// A simFigure is the result of a policy, relative to the policy that always uses the largest class.
type simFigure struct {
	name                 string
	cost, wasted, hedges float64 // relative to the cost of always the largest class
	again                float64 // share of actions
	half, p95, p99, mean float64 // slowdowns
	// p95Seconds is the 95th percentile of delays. makespan is the mean time to the last result of
	// a build, p95Makespan its 95th percentile.
	p95Seconds, makespan, p95Makespan float64
	spilled                           float64 // share of actions
}

func figureOf(name string, r, largest simResult, actionsPerBuild int) simFigure {
	slow, seconds, makespans := make([]float64, len(r.delays)), make([]float64, len(r.delays)), []float64{}
	for i, d := range r.delays {
		slow[i], seconds[i] = d.Seconds()/largest.delays[i].Seconds(), d.Seconds()
		if i%actionsPerBuild == 0 {
			makespans = append(makespans, 0)
		}
		makespans[len(makespans)-1] = max(makespans[len(makespans)-1], d.Seconds())
	}
	mean := func(list []float64) (sum float64) {
		for _, v := range list {
			sum += v / float64(len(list))
		}
		return sum
	}
	at := func(list []float64, q float64) float64 {
		slices.Sort(list)
		return list[min(int(q*float64(len(list))), len(list)-1)]
	}
	return simFigure{
		name: name, cost: r.cost / largest.cost, wasted: r.wasted / largest.cost, hedges: r.hedges / largest.cost,
		again: float64(r.again) / float64(len(slow)), spilled: float64(r.spilled) / float64(len(slow)),
		half: at(slow, 0.5), p95: at(slow, 0.95), p99: at(slow, 0.99), mean: mean(slow),
		p95Seconds: at(seconds, 0.95), makespan: mean(makespans), p95Makespan: at(makespans, 0.95),
	}
}

// benchSizes simulates all policies: with an unlimited number of workers, with a limited one, and
// with few small workers.
func benchSizes(ctx context.Context, o *sizesOptions, w io.Writer) error {
	p, err := readSizes(o.parameters)
	if err != nil {
		return err
	}
	commands, err := o.benchStreams(ctx, p, w)
	if err != nil || o.only {
		return errors.Join(err, report.Print(w, commands))
	}
	jobs := p.jobs()
	began := time.Now()
	var all [][]simFigure
	for _, farm := range []struct {
		title   string
		p       *sizesParameters
		bounded bool
	}{
		{"as many workers as are needed", p, false},
		{"a farm of few workers, the same number of CPUs for all", p, true},
		{"a farm of few small workers, the same number of CPUs for all", p.withFewSmall(), true},
	} {
		figures, err := o.simulateAll(ctx, farm.p, jobs, farm.p.ActionsPerBuild, farm.bounded)
		if err != nil {
			return err
		}
		if err := printFigures(w, farm.title, len(jobs), figures); err != nil {
			return err
		}
		all = append(all, figures)
	}
	pools, err := benchPools(ctx, p, jobs, o.exponent)
	if err != nil {
		return err
	}
	rows := slices.Concat(sizesRows(all[0]), spillRows(all[2]), pools, commands)
	_, err = fmt.Fprintf(w, "x = %g, seed %d, took %s\n\n", o.exponent, p.Seed, time.Since(began).Round(time.Second))
	err = errors.Join(err, report.Print(w, rows), report.Write(o.out, "sizes.json", rows))
	if o.plot != "" && err == nil {
		err = o.draw(ctx, p, jobs)
	}
	return err
}

func (o *sizesOptions) simulateAll(
	ctx context.Context, p *sizesParameters, jobs []*simJob, perBuild int, bounded bool,
) (figures []simFigure, err error) {
	var largest simResult
	for _, c := range simCases(p) {
		if bounded && c.by == byPeer {
			continue
		}
		policy, err := c.policy(o.exponent, p.Seed)
		if err != nil {
			return nil, err
		}
		r := simulate(ctx, p, jobs, policy, bounded)
		if c.name == alwaysLargest {
			largest = r
		}
		figures = append(figures, figureOf(c.name, r, largest, perBuild))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return figures, nil
}

func named(figures []simFigure, name string) simFigure {
	return figures[slices.IndexFunc(figures, func(f simFigure) bool { return f.name == name })]
}

func printFigures(w io.Writer, title string, jobs int, figures []simFigure) error {
	table := [][]string{{"policy", "cost", "wasted", "run again", "spilled", "median", "mean", "p95", "p99", "p95 delay, s", "makespan, s", "p95"}}
	for _, f := range figures {
		table = append(table, []string{
			f.name, share(f.cost), share(f.wasted), share(f.again), share(f.spilled),
			report.FormatValue(f.half), report.FormatValue(f.mean), report.FormatValue(f.p95), report.FormatValue(f.p99),
			report.FormatValue(f.p95Seconds), report.FormatValue(f.makespan), report.FormatValue(f.p95Makespan),
		})
	}
	_, err := fmt.Fprintf(w, "%d actions, %s\n\n", jobs, title)
	err = errors.Join(err, report.PrintTable(w, table))
	_, newline := fmt.Fprintln(w)
	return errors.Join(err, newline)
}

func share(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// sizesRows returns the rows of sizes.json.
func sizesRows(figures []simFigure) []report.Row {
	ours, plain, peer := named(figures, oursNow), named(figures, plainRule), named(figures, thePeer)
	rows := []report.Row{
		report.NewRow("cost_over_largest", ours.cost, "ratio"),
		report.NewRow("p95_slowdown", ours.p95, "ratio"),
		report.NewRow("p95_slowdown_plain", plain.p95, "ratio"),
		report.NewRow("cost_plain_over_largest", plain.cost, "ratio"),
		report.NewRow("p95_slowdown_peer", peer.p95, "ratio"),
		report.NewRow("cost_peer_over_largest", peer.cost, "ratio"),
	}
	rows[0].Wanted, rows[0].Baseline = "≤ 0.5", alwaysLargest
	rows[0].Note = fmt.Sprintf("%.3f of it wasted", ours.wasted)
	rows[1].Wanted, rows[1].Baseline = "≤ p95_slowdown_plain, p95_slowdown_peer", alwaysLargest
	rows[1].Note = fmt.Sprintf("median %.2f, p99 %.2f", ours.half, ours.p99)
	rows[2].Baseline = alwaysLargest
	rows[2].Note = fmt.Sprintf("median %.2f, p99 %.2f", plain.half, plain.p99)
	rows[3].Baseline = alwaysLargest
	rows[3].Note = fmt.Sprintf("%.3f of it wasted", plain.wasted)
	rows[4].Baseline, rows[5].Baseline = alwaysLargest, alwaysLargest
	rows[4].Note = fmt.Sprintf("median %.2f, p99 %.2f", peer.half, peer.p99)
	rows[5].Note = fmt.Sprintf("%.3f of it wasted", peer.wasted)
	return rows
}

// spillRows returns the rows of sizes.json about spilling, on the farm with few small workers.
func spillRows(figures []simFigure) []report.Row {
	const moved = "went to a larger class than was chosen"
	return moveRows("", moved, named(figures, oursNow), named(figures, oursWaiting), func(f simFigure) string {
		return fmt.Sprintf("95th percentile %.4g; cost %.3f", f.p95Makespan, f.cost)
	})
}

// moveRows returns the rows of a farm with and without moves to other workers. moved describes the
// moves; note describes a makespan.
func moveRows(farm, moved string, with, without simFigure, note func(simFigure) string) []report.Row {
	spill, noSpill := farm+"spill", farm+"no_spill"
	rows := []report.Row{
		report.NewRow("p95_delay_"+spill, with.p95Seconds, "s"),
		report.NewRow("p95_delay_"+noSpill, without.p95Seconds, "s"),
		report.NewRow("makespan_"+spill, with.makespan, "s"),
		report.NewRow("makespan_"+noSpill, without.makespan, "s"),
	}
	rows[0].Wanted, rows[2].Wanted = "≤ p95_delay_"+noSpill, "≤ makespan_"+noSpill
	rows[0].Note = fmt.Sprintf("%.3f of the actions %s", with.spilled, moved)
	rows[2].Note, rows[3].Note = note(with), note(without)
	return rows
}
