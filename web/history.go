package web

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/charts"
)

// samplePeriod and charts.Samples make the hour that is plotted.
const samplePeriod = 10 * time.Second

// A sample is how much of everything there was at a moment.
type sample struct {
	waiting, executing, slots, busy, free, workers, draining, lost int64
	longest                                                        time.Duration // that the first of a queue waits
}

// A history holds the samples of the last hour, the oldest first.
type history struct {
	mu   sync.Mutex
	list []sample
}

func (h *history) add(x sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) == charts.Samples {
		h.list = append(h.list[:0], h.list[1:]...)
	}
	h.list = append(h.list, x)
}

func (h *history) all() []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]sample(nil), h.list...)
}

// run takes samples until ctx ends, and returns nil.
func (p *queuePages) run(ctx context.Context) error {
	ticker := time.NewTicker(samplePeriod)
	defer ticker.Stop()
	for {
		list, err := p.list(ctx)
		if err == nil {
			p.history.add(sampleOf(list))
		} else if ctx.Err() == nil {
			p.logger.Warn("no sample for the plots", zap.Error(err))
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
		x.slots += int64(q.GetSlots())
		x.busy += int64(q.GetSlotsBusy())
		x.free += int64(q.GetSlotsFree())
		x.draining += int64(q.GetDraining())
		if q.GetHeadQueued() != nil {
			x.longest = max(x.longest, time.Since(q.GetHeadQueued().AsTime()))
		}
	}
	return x
}

// plots draws the lines of a history.
func plots(list []sample) []charts.Plot {
	of := func(title string, value func(sample) int64, inSeconds bool) charts.Plot {
		values := make([]int64, len(list))
		for i, x := range list {
			values[i] = value(x)
		}
		return charts.PlotOf(title, values, inSeconds)
	}
	return []charts.Plot{
		of("Waiting actions", func(x sample) int64 { return x.waiting }, false),
		of("Longest wait", func(x sample) int64 { return int64(x.longest / time.Second) }, true),
		of("Slots busy", func(x sample) int64 { return x.busy }, false),
		of("Workers", func(x sample) int64 { return x.workers }, false),
	}
}
