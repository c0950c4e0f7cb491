package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// A pagesShape is a scheduler that is looked at, and how long.
type pagesShape struct {
	queued, workers, instances int
	quick                      int           // workers whose actions take no time
	perInvocation              int           // operations
	window                     time.Duration // each half of a pair
	pause                      time.Duration // of the viewer, between two rounds through the pages
}

// issuePages is what issue 10 asks for.
func issuePages() pagesShape {
	return pagesShape{
		queued: 100_000, workers: 5000, quick: 100, instances: 20, perInvocation: 25,
		window: 10 * time.Second, pause: 2 * time.Second,
	}
}

type pagesOptions struct {
	runs         int
	out, profile string
}

func newPagesCommand() *cobra.Command {
	o := &pagesOptions{}
	cmd := &cobra.Command{
		Use: "pages", Short: "measure the scheduler's pages over a long queue, and what they cost dispatch", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.runs < 1 {
				return errors.New("--runs must be at least 1")
			}
			return benchPages(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.runs, "runs", 10, "pairs of windows without and with a viewer")
	f.StringVar(&o.out, "out", "build/bench", "folder for the JSON")
	f.StringVar(&o.profile, "profile", "", "`file` for a CPU profile of the pairs")
	return cmd
}

func benchPages(ctx context.Context, o *pagesOptions, w io.Writer) (err error) {
	facts := machine(".")
	f, err := startPagesFarm(ctx, issuePages())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if o.profile != "" {
		end, err := profileCPU(o.profile)
		if err != nil {
			return err
		}
		defer func() { _ = end() }()
	}
	figures, err := f.measure(ctx, o.runs)
	if err != nil {
		return err
	}
	rows := figures.rows(f.shape)
	_, printErr := fmt.Fprintf(w, "%s; %d runs\n\n", facts, o.runs)
	return errors.Join(printErr, printRows(w, rows), writeRows(o.out, "pages.json", rows))
}

// pagesFigures are what was measured.
type pagesFigures struct {
	// loads are those of each page, beside dispatch.
	loads map[string][]pageLoad
	// alone and viewed are actions a second, in pairs.
	alone, viewed []float64
	// waits says, for each question that pages ask, how long others waited for the scheduler, in ms.
	waits map[string][]float64
}

// measure lets the viewer come and go, in pairs whose order changes, and then looks how long
// each question keeps the scheduler.
func (f *pagesFarm) measure(ctx context.Context, runs int) (*pagesFigures, error) {
	figures := &pagesFigures{loads: map[string][]pageLoad{}}
	v, err := f.newViewer(ctx)
	if err != nil {
		return nil, err
	}
	defer v.close()
	if _, err := f.rate(ctx); err != nil { // until the heap has been full once
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
		progress("pair %d of %d: %.0f and %.0f actions/s", run+1, runs, figures.alone[run], figures.viewed[run])
	}
	figures.waits, err = f.waits(ctx)
	return figures, err
}

// rows are the figures as they are printed.
func (p *pagesFigures) rows(shape pagesShape) []row {
	var rows []row
	for _, page := range shownPages("") {
		var ms []float64
		size := 0
		for _, l := range p.loads[page.row] {
			ms = append(ms, l.took.Seconds()*1000)
			size = max(size, l.bytes)
		}
		name := "page_" + page.row + "_ms"
		if len(ms) == 0 {
			rows = append(rows, notMeasured(name, "ms", "no time for it"))
			continue
		}
		r := newRow(name, median(ms), "ms")
		r.wanted = "< 1000"
		r.Note = fmt.Sprintf("%s, %d times; %.0f KiB", spread(ms), len(ms), float64(size)/1024)
		rows = append(rows, r)
	}
	ratios := make([]float64, len(p.viewed))
	for i := range ratios {
		ratios[i] = p.viewed[i] / p.alone[i]
	}
	r := newRow("viewed_dispatch", median(ratios), "ratio")
	r.wanted = "≥ 0.95"
	r.Baseline = fmt.Sprintf("%.0f actions/s", median(p.alone))
	r.Note = fmt.Sprintf("%.0f actions/s with a viewer; %s, %d pairs", median(p.viewed), spread(ratios), len(ratios))
	rows = append(rows, r)
	for _, question := range pageQuestions() {
		ms := p.waits[question.row]
		r := newRow("wait_"+question.row+"_ms", median(ms), "ms")
		r.Note = fmt.Sprintf("longest wait of others for the scheduler; %s, %d times", spread(ms), len(ms))
		rows = append(rows, r)
	}
	return rows
}
