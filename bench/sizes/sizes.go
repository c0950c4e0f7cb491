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
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

type sizesOptions struct {
	parameters, out, plot string
	exponent              float64
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
	f := cmd.Flags()
	f.StringVar(&o.parameters, "parameters", "", "JSON `file` with the stream of actions and the workers (default cmd/bench/sizes.json, built in)")
	f.StringVar(&o.out, "out", "build/bench", "folder for the JSON")
	f.StringVar(&o.plot, "plot", "", "SVG `file` to draw cost and delay to")
	f.Float64Var(&o.exponent, "exponent", 0.5, "how much slower an action may be on a smaller class, 0 to 1")
	return cmd
}

// A simCase is a policy by name.
type simCase struct {
	name  string
	first uint32 // the class that actions start on, if an Analyzer does not choose
	// learns has an Analyzer choose, by the plain rule alone or not.
	learns, plain bool
}

// The names of the policies that rows are about.
const (
	alwaysLargest = "always largest"
	smallestFirst = "smallest, then largest"
	plainRule     = "plain rule"
	oursNow       = "ours"
)

// simCases are the four policies.
func simCases(p *sizesParameters) []simCase {
	return []simCase{
		{name: alwaysLargest, first: p.largest()},
		{name: smallestFirst, first: p.smallest()},
		{name: plainRule, learns: true, plain: true},
		{name: oursNow, learns: true},
	}
}

// policy returns a fresh one that knows nothing.
func (c simCase) policy(exponent float64, seed uint64) (simPolicy, error) {
	if !c.learns {
		return simPolicy{first: c.first}, nil
	}
	a, err := sizeclass.NewAnalyzer(records.NewMemory(1<<30), sizeclass.Options{
		Exponent: exponent, Plain: c.plain, Seed: seed,
	})
	return simPolicy{analyzer: a}, err
}

// A simFigure is what a policy did, over what always the largest class did.
type simFigure struct {
	name                 string
	cost, wasted         float64 // shares of the cost of always largest
	again                float64 // share of the actions
	half, p95, p99, mean float64 // slowdowns
}

func figureOf(name string, r, largest simResult) simFigure {
	slow := make([]float64, len(r.delays))
	sum := 0.0
	for i, d := range r.delays {
		slow[i] = d.Seconds() / largest.delays[i].Seconds()
		sum += slow[i]
	}
	slices.Sort(slow)
	at := func(q float64) float64 { return slow[min(int(q*float64(len(slow))), len(slow)-1)] }
	return simFigure{
		name: name, cost: r.cost / largest.cost, wasted: r.wasted / largest.cost,
		again: float64(r.again) / float64(len(slow)),
		half:  at(0.5), p95: at(0.95), p99: at(0.99), mean: sum / float64(len(slow)),
	}
}

// benchSizes simulates all policies, with workers without number and with some.
func benchSizes(ctx context.Context, o *sizesOptions, w io.Writer) error {
	p, err := readSizes(o.parameters)
	if err != nil {
		return err
	}
	jobs := p.jobs()
	began := time.Now()
	var free []simFigure
	for _, bounded := range []bool{false, true} {
		figures, err := o.simulateAll(ctx, p, jobs, bounded)
		if err != nil {
			return err
		}
		title := "as many workers as are needed"
		if bounded {
			title = "a farm of few workers, the same number of CPUs for all"
		} else {
			free = figures
		}
		if err := printFigures(w, title, len(jobs), figures); err != nil {
			return err
		}
	}
	rows := sizesRows(free)
	_, err = fmt.Fprintf(w, "x = %g, seed %d, took %s\n\n", o.exponent, p.Seed, time.Since(began).Round(time.Second))
	err = errors.Join(err, report.Print(w, rows), report.Write(o.out, "sizes.json", rows))
	if o.plot != "" && err == nil {
		err = o.draw(ctx, p, jobs)
	}
	return err
}

func (o *sizesOptions) simulateAll(
	ctx context.Context, p *sizesParameters, jobs []*simJob, bounded bool,
) (figures []simFigure, err error) {
	var largest simResult
	for _, c := range simCases(p) {
		policy, err := c.policy(o.exponent, p.Seed)
		if err != nil {
			return nil, err
		}
		r := simulate(ctx, p, jobs, policy, bounded)
		if c.name == alwaysLargest {
			largest = r
		}
		figures = append(figures, figureOf(c.name, r, largest))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return figures, nil
}

func printFigures(w io.Writer, title string, jobs int, figures []simFigure) error {
	table := [][]string{{"policy", "cost", "wasted", "run again", "median", "mean", "p95", "p99"}}
	for _, f := range figures {
		table = append(table, []string{
			f.name, share(f.cost), share(f.wasted), share(f.again),
			report.FormatValue(f.half), report.FormatValue(f.mean), report.FormatValue(f.p95), report.FormatValue(f.p99),
		})
	}
	_, err := fmt.Fprintf(w, "%d actions, %s\n\n", jobs, title)
	err = errors.Join(err, report.PrintTable(w, table))
	_, newline := fmt.Fprintln(w)
	return errors.Join(err, newline)
}

func share(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// sizesRows are those of sizes.json.
func sizesRows(figures []simFigure) []report.Row {
	by := map[string]simFigure{}
	for _, f := range figures {
		by[f.name] = f
	}
	ours, plain := by[oursNow], by[plainRule]
	rows := []report.Row{
		report.NewRow("cost_over_largest", ours.cost, "ratio"),
		report.NewRow("p95_slowdown", ours.p95, "ratio"),
		report.NewRow("p95_slowdown_plain", plain.p95, "ratio"),
		report.NewRow("cost_plain_over_largest", plain.cost, "ratio"),
	}
	rows[0].Wanted, rows[0].Baseline = "≤ 0.5", alwaysLargest
	rows[0].Note = fmt.Sprintf("%.3f of it wasted", ours.wasted)
	rows[1].Wanted, rows[1].Baseline = "≤ p95_slowdown_plain", alwaysLargest
	rows[1].Note = fmt.Sprintf("median %.2f, p99 %.2f", ours.half, ours.p99)
	rows[2].Baseline = alwaysLargest
	rows[2].Note = fmt.Sprintf("median %.2f, p99 %.2f", plain.half, plain.p99)
	rows[3].Baseline = alwaysLargest
	rows[3].Note = fmt.Sprintf("%.3f of it wasted", plain.wasted)
	return rows
}
