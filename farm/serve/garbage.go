package serve

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/hugepages"
)

const (
	// spareGarbage is how much garbage a process may hold even if it needs little: an earlier
	// collection would only cost CPU.
	spareGarbage = 512 << 20
	// garbageShare is the part of the memory that garbage may take: an eighth.
	garbageShare = 8
	// garbagePercent is how much garbage a process may hold that needs a large part of the memory,
	// in percent of what it needs.
	garbagePercent = 50
	// garbageEvery is how often the bound follows the need.
	garbageEvery = time.Second
)

// PaceRuntime adapts the Go runtime of this process to its settings, until stop is called or ctx
// ends. It is for main.
func (c *Callers) PaceRuntime(ctx context.Context, log *zap.Logger) (stop func(), err error) {
	memory, err := c.Memory.Enforce()
	if err != nil {
		return nil, err
	}
	slackenMonitor(c.MonitorSlack, log)
	spareProcessors(c.SpareProcessors)
	return PaceMemory(ctx, memory, c.HugePages), nil
}

// PaceMemory adapts the garbage collection of this process to its memory, and puts that on huge
// pages if these are wanted, until stop is called or ctx ends. A small process collects rarely, a
// large one as Go does by default, and one with little memory more often. It is for main; GOGC in
// the environment has precedence.
func PaceMemory(ctx context.Context, memory int64, hugePages bool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var pacing sync.WaitGroup
	pacing.Go(func() { pace(ctx, memory) })
	if hugePages {
		pacing.Go(func() { hugepages.Keep(ctx) })
	}
	return func() {
		cancel()
		pacing.Wait()
	}
}

func pace(ctx context.Context, memory int64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	ticker := time.NewTicker(garbageEvery)
	defer ticker.Stop()
	percent := 0
	for {
		// Setting it stops the world for a moment.
		if p := gcPercent(neededBytes(), uint64(memory)); p < percent*9/10 || p > percent*11/10 {
			debug.SetGCPercent(p)
			percent = p
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// gcPercent is GOGC for a process that needs this many bytes of the available ones. It may hold as
// much garbage as it needs, because a collection costs more, the more is needed.
func gcPercent(needed, memory uint64) int {
	spare := min(max(spareGarbage, needed), memory/garbageShare)
	return int(max(garbagePercent, 100*spare/max(needed, spare/20, 1)))
}

// neededBytes is the heap after the last collection, plus the stacks, as the collector counts.
func neededBytes() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}
