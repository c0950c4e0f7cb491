package web

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/proto/admin"
)

const (
	// samplePeriod and samples make the hour that is plotted.
	samplePeriod = 10 * time.Second
	samples      = 360
)

// A sample is how much of everything there was at a moment.
type sample struct{ waiting, executing, workers int64 }

// A history holds the samples of the last hour, the oldest first.
type history struct {
	mu   sync.Mutex
	list []sample
}

func (h *history) add(x sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) == samples {
		h.list = append(h.list[:0], h.list[1:]...)
	}
	h.list = append(h.list, x)
}

func (h *history) all() []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]sample(nil), h.list...)
}

// Run takes samples until ctx ends, and returns nil.
func (s *Site) Run(ctx context.Context) error {
	ticker := time.NewTicker(samplePeriod)
	defer ticker.Stop()
	for {
		list, err := s.queues(ctx)
		if err == nil {
			s.history.add(sampleOf(list))
		} else if ctx.Err() == nil {
			s.options.Logger.Warn("no sample for the plots", zap.Error(err))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func sampleOf(list *admin.ListQueuesResponse) sample {
	x := sample{waiting: list.GetUnmatched()}
	for _, q := range list.GetQueues() {
		x.waiting += q.GetQueued()
		x.executing += int64(q.GetExecuting())
		x.workers += int64(q.GetWorkers())
	}
	return x
}

// A plot is a line over the last hour, in an SVG of plotWidth by plotHeight.
type plot struct {
	Title  string
	Points string // "x,y x,y"; empty: too few
	Now    int64
	Top    int64 // the value at the upper edge
}

const plotWidth, plotHeight = samples, 60

func (p plot) Width() int  { return plotWidth }
func (p plot) Height() int { return plotHeight }

// Summary says the same in words.
func (p plot) Summary() string {
	return fmt.Sprintf("%s over the last hour: now %d, scale from 0 to %d", p.Title, p.Now, p.Top)
}

// plots draws the three lines of a history. The youngest sample is at the right.
func plots(list []sample) []plot {
	of := func(title string, value func(sample) int64) plot {
		p := plot{Title: title, Top: 1}
		for _, x := range list {
			p.Top = max(p.Top, value(x))
		}
		var b strings.Builder
		for i, x := range list {
			y := float64(plotHeight) * (1 - float64(value(x))/float64(p.Top))
			fmt.Fprintf(&b, "%d,%.1f ", plotWidth-len(list)+i, y)
			p.Now = value(x)
		}
		if len(list) > 1 {
			p.Points = strings.TrimSpace(b.String())
		}
		return p
	}
	return []plot{
		of("Waiting actions", func(x sample) int64 { return x.waiting }),
		of("Running actions", func(x sample) int64 { return x.executing }),
		of("Workers", func(x sample) int64 { return x.workers }),
	}
}
