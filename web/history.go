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
type sample struct {
	waiting, executing, workers, idle, draining, lost int64
	longest                                           time.Duration // that the first of a queue waits
}

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
	x := sample{waiting: list.GetUnmatched(), lost: list.GetWorkersLost()}
	for _, q := range list.GetQueues() {
		x.waiting += q.GetQueued()
		x.executing += int64(q.GetExecuting())
		x.workers += int64(q.GetWorkers())
		x.idle += int64(q.GetIdle())
		x.draining += int64(q.GetDraining() - q.GetResting())
		if q.GetHeadQueued() != nil {
			x.longest = max(x.longest, time.Since(q.GetHeadQueued().AsTime()))
		}
	}
	return x
}

// A plot is a line over the last hour, in an SVG of plotWidth by plotHeight.
type plot struct {
	Title     string
	Points    string // "x,y x,y"; empty: too few
	from      int    // the x of the first
	Now       int64
	Top       int64 // the value at the upper edge
	inSeconds bool
}

const plotWidth, plotHeight = samples, 60

func (p plot) Width() int  { return plotWidth }
func (p plot) Height() int { return plotHeight }

// Area is the path of what is below the line.
func (p plot) Area() string {
	return fmt.Sprintf("M%d,%d L%s L%d,%d Z", p.from, plotHeight, p.Points, plotWidth-1, plotHeight)
}

// Text writes a value with its unit.
func (p plot) Text(value int64) string {
	if p.inSeconds {
		return (time.Duration(value) * time.Second).String()
	}
	return count(value)
}

// Summary says the same in words.
func (p plot) Summary() string {
	return fmt.Sprintf("%s over the last hour: now %s, scale from 0 to %s", p.Title, p.Text(p.Now), p.Text(p.Top))
}

// plots draws the lines of a history. The youngest sample is at the right.
func plots(list []sample) []plot {
	of := func(title string, value func(sample) int64) plot {
		p := plot{Title: title, Top: 1, from: plotWidth - len(list)}
		for _, x := range list {
			p.Top = max(p.Top, value(x))
		}
		var b strings.Builder
		for i, x := range list {
			y := float64(plotHeight) * (1 - float64(value(x))/float64(p.Top))
			fmt.Fprintf(&b, "%d,%.1f ", p.from+i, y)
			p.Now = value(x)
		}
		if len(list) > 1 {
			p.Points = strings.TrimSpace(b.String())
		}
		return p
	}
	wait := of("Longest wait", func(x sample) int64 { return int64(x.longest / time.Second) })
	wait.inSeconds = true
	return []plot{
		of("Waiting actions", func(x sample) int64 { return x.waiting }),
		wait,
		of("Running actions", func(x sample) int64 { return x.executing }),
		of("Workers", func(x sample) int64 { return x.workers }),
	}
}
