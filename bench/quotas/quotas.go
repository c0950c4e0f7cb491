package quotas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/bench/report"
)

// quotasFarm returns the shape of the farm in the benchmark.
func quotasFarm() quotaShape {
	return quotaShape{
		cohorts: 5, workers: 1000, instances: 40, typical: 5 * time.Minute, length: time.Hour, pace: 10 * time.Minute,
		delay: 10 * time.Second, grace: 5 * time.Second, stop: time.Second, atMost: 3, upload: 500 * time.Millisecond,
	}
}

type quotasOptions struct {
	runs int
	out  string
}

// NewCommand returns the subcommand of this benchmark.
func NewCommand() *cobra.Command {
	o := &quotasOptions{}
	cmd := &cobra.Command{
		Use: "quotas", Short: "simulate instances that share a farm by quotas", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return benchQuotas(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntVar(&o.runs, "runs", 3, "number of farms to simulate, each with different demand")
	cmd.Flags().StringVar(&o.out, "out", "build/bench", "`folder` for the JSON report")
	return cmd
}

// quotaFigures are the results of one farm.
type quotaFigures struct {
	share, utilisation, p50, p99, worst float64
	stopped, ended, episodes            int
	took                                time.Duration
}

func benchQuotas(ctx context.Context, o *quotasOptions, w io.Writer) error {
	if o.runs < 1 {
		return errors.New("--runs must be at least 1")
	}
	var figures []quotaFigures
	shape := quotasFarm()
	for run := range o.runs {
		report.Progress("quotas, farm %d of %d", run+1, o.runs)
		shape.seed = uint64(run)
		f, err := newQuotaFarm(shape)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := f.run(func() error { return ctx.Err() }); err != nil {
			return err
		}
		figures = append(figures, f.figures(time.Since(began)))
		if run == 0 {
			if err := f.printInstances(w); err != nil {
				return err
			}
		}
	}
	rows := quotaRows(shape, figures)
	return errors.Join(report.Print(w, rows), report.Write(o.out, "quotas.json", rows))
}

func (f *quotaFarm) figures(took time.Duration) quotaFigures {
	var episodes []float64
	for _, c := range f.cohortList {
		for _, n := range c.instances {
			episodes = append(episodes, n.episodes...)
		}
	}
	slices.Sort(episodes)
	return quotaFigures{
		share: f.lost / (f.lost + f.done), utilisation: f.used / f.offered,
		p50: report.Quantile(episodes, 0.5), p99: report.Quantile(episodes, 0.99), worst: report.Quantile(episodes, 1),
		stopped: f.stopped, ended: f.made - len(f.operations), episodes: len(episodes), took: took,
	}
}

// printInstances prints how long each instance was below its minimum with waiting operations.
func (f *quotaFarm) printInstances(w io.Writer) error {
	table := [][]string{{"instance", "min", "max", "times below", "seconds below", "longest", "share of the time"}}
	for _, c := range f.cohortList {
		for _, n := range c.instances {
			sum, longest := 0.0, 0.0
			for _, e := range n.episodes {
				sum, longest = sum+e, max(longest, e)
			}
			limit := "–"
			if n.quota.Max > 0 {
				limit = fmt.Sprint(n.quota.Max)
			}
			table = append(table, []string{
				n.name, fmt.Sprint(n.quota.Min), limit, fmt.Sprint(len(n.episodes)), report.FormatValue(sum), report.FormatValue(longest),
				fmt.Sprintf("%.2f %%", 100*sum/f.length.Seconds()),
			})
		}
	}
	err := report.PrintTable(w, table)
	_, last := fmt.Fprintln(w)
	return errors.Join(err, last)
}

func quotaRows(shape quotaShape, figures []quotaFigures) []report.Row {
	of := func(what func(quotaFigures) float64) (values []float64) {
		for _, f := range figures {
			values = append(values, what(f))
		}
		return values
	}
	first := figures[0]
	shares := of(func(f quotaFigures) float64 { return f.share })
	share := report.NewRow("preempted_share", report.Median(shares), "")
	share.Wanted = "< 0.01"
	share.Note = fmt.Sprintf("%s of %d farms of %d workers in %d cohorts with %d instances each, %s of virtual time in %s; %d of %d runs stopped in the first",
		report.Spread(shares), len(figures), shape.cohorts*shape.workers, shape.cohorts, shape.instances, shape.length,
		first.took.Round(time.Second), first.stopped, first.stopped+first.ended)
	used := of(func(f quotaFigures) float64 { return f.utilisation })
	utilisation := report.NewRow("utilisation", report.Median(used), "")
	utilisation.Wanted = "> 0.98"
	utilisation.Note = report.Spread(used) + "; of the time in which an operation that was allowed to run waited"
	tails := of(func(f quotaFigures) float64 { return f.p99 })
	below := report.NewRow("below_guarantee_s_p99", report.Median(tails), "s")
	below.Wanted = fmt.Sprintf("≤ %.0f", (shape.delay + shape.grace + shape.stop).Seconds())
	below.Note = fmt.Sprintf("%s; of %d times that an instance was below its minimum in the first, median %s s, longest %s s",
		report.Spread(tails), first.episodes, report.FormatValue(first.p50), report.FormatValue(first.worst))
	return []report.Row{share, utilisation, below}
}
