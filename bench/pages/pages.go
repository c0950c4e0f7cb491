package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/scheduler"
	"github.com/forerunner-build/forerunner/history"
)

// A pagesShape has the size of the farm and the duration of the measurement.
type pagesShape struct {
	queued, workers, instances int
	quick                      int            // workers whose actions take no time; the others hang
	perInvocation              int            // operations per invocation
	window                     time.Duration  // duration of each half of a pair
	pause                      time.Duration  // of the viewer, between two rounds through all pages
	records                    *history.Store // nil: no records
}

// longQueue returns the shape for the rows.
func longQueue() pagesShape {
	return pagesShape{
		queued: 100_000, workers: 5000, quick: 100, instances: 20, perInvocation: 25,
		window: 10 * time.Second, pause: 2 * time.Second,
	}
}

type pagesOptions struct {
	runs              int
	out, profile, dir string
	// recordsOnly and queueOnly select one of the halves.
	recordsOnly, queueOnly bool
}

// NewCommand returns the subcommand of this benchmark.
func NewCommand() *cobra.Command {
	o := &pagesOptions{}
	cmd := &cobra.Command{
		Use: "pages", Short: "measure the scheduler's pages and records with a long queue and a long history, and how much they slow down dispatch", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.runs < 1 {
				return errors.New("--runs must be at least 1")
			}
			if o.recordsOnly && o.queueOnly {
				return errors.New("--records-only and --queue-only: choose one")
			}
			return benchPages(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.runs, "runs", 10, "pairs of measurements, without and with a viewer")
	f.StringVar(&o.out, "out", "build/bench", "folder for the JSON")
	f.StringVar(&o.dir, "dir", "", "`folder` for records, which take 3 GiB (default the folder for temporary files)")
	f.BoolVar(&o.recordsOnly, "records-only", false, "measure only records, not pages with a long queue")
	f.BoolVar(&o.queueOnly, "queue-only", false, "measure only pages with a long queue, not records")
	f.StringVar(&o.profile, "profile", "", "`file` for a CPU profile of the pairs")
	return cmd
}

func benchPages(ctx context.Context, o *pagesOptions, w io.Writer) (err error) {
	facts := report.Machine(".")
	if o.profile != "" {
		end, err := report.ProfileCPU(o.profile)
		if err != nil {
			return err
		}
		defer func() { _ = end() }()
	}
	var rows []report.Row
	if !o.recordsOnly {
		if rows, err = rowsOfQueue(ctx, o.runs); err != nil {
			return err
		}
	}
	if !o.queueOnly {
		ofRecords, err := rowsOfRecords(ctx, o)
		if err != nil {
			return err
		}
		rows = append(rows, ofRecords...)
	}
	name := "pages.json"
	switch {
	case o.recordsOnly:
		name = "pages-records.json"
	case o.queueOnly:
		name = "pages-queue.json"
	}
	_, printErr := fmt.Fprintf(w, "%s; %d runs\n\n", facts, o.runs)
	return errors.Join(printErr, report.Print(w, rows), report.Write(o.out, name, rows))
}

// rowsOfQueue measures the pages with a long queue.
func rowsOfQueue(ctx context.Context, runs int) (_ []report.Row, err error) {
	f, err := startPagesFarm(ctx, longQueue())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	figures, err := f.measure(ctx, runs)
	if err != nil {
		return nil, err
	}
	return figures.rows(f.shape), nil
}

// rowsOfRecords measures the cost of records, and the pages with many records.
func rowsOfRecords(ctx context.Context, o *pagesOptions) (_ []report.Row, err error) {
	dir, leave, err := report.WorkFolder(o.dir, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	rows, err := scheduler.Records(ctx, dir, max(1, o.runs/3))
	if err != nil {
		return nil, fmt.Errorf("records over gRPC: %w", err)
	}
	shape := manyRecords()
	figures, err := measureRecords(ctx, shape, dir, o.runs)
	if err != nil {
		return nil, err
	}
	return append(rows, figures.rows(shape)...), nil
}

// pagesFigures are the results of pages with a long queue.
type pagesFigures struct {
	// loads has the loads of each page during dispatch.
	loads map[string][]pageLoad
	// alone and viewed have the actions per second without and with a viewer, in pairs.
	alone, viewed []float64
	// waits has, for each request of pages, how long other callers waited for the scheduler, in ms.
	waits map[string][]float64
}

// measure measures dispatch without and with a viewer, in pairs whose order alternates. Then it
// measures how long each request of pages occupies the scheduler.
func (f *pagesFarm) measure(ctx context.Context, runs int) (*pagesFigures, error) {
	figures := &pagesFigures{loads: map[string][]pageLoad{}}
	v, err := f.newViewer(ctx, shownPages(f.hanging))
	if err != nil {
		return nil, err
	}
	defer v.close()
	if _, err := f.rate(ctx); err != nil { // warm-up: the heap fills up once
		return nil, err
	}
	for run := range runs {
		alone := func() error {
			rate, err := f.rate(ctx)
			figures.alone = append(figures.alone, rate)
			return err
		}
		viewed := func() error {
			rate, err := v.during(ctx, figures.loads, f.rate)
			figures.viewed = append(figures.viewed, rate)
			return err
		}
		order := []func() error{alone, viewed}
		if run%2 == 1 {
			slices.Reverse(order)
		}
		for _, window := range order {
			if err := window(); err != nil {
				return nil, err
			}
		}
		report.Progress("pair %d of %d: %.0f and %.0f actions/s", run+1, runs, figures.alone[run], figures.viewed[run])
	}
	figures.waits, err = f.waits(ctx)
	return figures, err
}

// rows returns the rows of the figures.
func (p *pagesFigures) rows(shape pagesShape) []report.Row {
	var rows []report.Row
	for _, page := range shownPages("") {
		var ms []float64
		size := 0
		for _, l := range p.loads[page.row] {
			ms = append(ms, report.Milliseconds(l.took))
			size = max(size, l.bytes)
		}
		name := "page_" + page.row + "_ms"
		if len(ms) == 0 {
			rows = append(rows, report.NotMeasured(name, "ms", "no time for it"))
			continue
		}
		r := report.NewRow(name, report.Median(ms), "ms")
		r.Wanted = "< 1000"
		r.Note = fmt.Sprintf("%s, %d times; %.0f KiB", report.Spread(ms), len(ms), float64(size)/1024)
		rows = append(rows, r)
	}
	ratios := make([]float64, len(p.viewed))
	for i := range ratios {
		ratios[i] = p.viewed[i] / p.alone[i]
	}
	r := report.NewRow("viewed_dispatch", report.Median(ratios), "ratio")
	r.Wanted = "≥ 0.95"
	r.Baseline = fmt.Sprintf("%.0f actions/s", report.Median(p.alone))
	r.Note = fmt.Sprintf("%.0f actions/s with a viewer; %s, %d pairs", report.Median(p.viewed), report.Spread(ratios), len(ratios))
	rows = append(rows, r)
	for _, question := range pageQuestions() {
		ms := p.waits[question.row]
		r := report.NewRow("wait_"+question.row+"_ms", report.Median(ms), "ms")
		r.Note = fmt.Sprintf("longest wait of others for the scheduler; %s, %d times", report.Spread(ms), len(ms))
		rows = append(rows, r)
	}
	return rows
}
