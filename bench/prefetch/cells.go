package prefetch

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/vfs"
)

// A memoryKey identifies a memory.
type memoryKey struct {
	work   string
	column column
}

// A memory is the state of a worker that has run some actions.
type memory struct {
	folder  string // its data folder
	actions []digest.Digest
}

// train makes workers run the actions that the cells assume as known.
func (b *prefetchBench) train(ctx context.Context) error {
	for _, c := range b.wanted() {
		if !b.can(c) {
			continue
		}
		if err := b.remember(ctx, memoryKey{c.work, c.column}); err != nil {
			return fmt.Errorf("train %s %s: %w", c.work, c.column, err)
		}
	}
	return nil
}

// remember makes a memory, unless it is there or the column has none.
func (b *prefetchBench) remember(ctx context.Context, key memoryKey) error {
	if _, done := b.memories[key]; done {
		return nil
	}
	w := b.works[key.work]
	if before, ok := key.column.before(); ok {
		first := memoryKey{key.work, before}
		if err := b.remember(ctx, first); err != nil {
			return err
		}
		return b.runFor(ctx, key, b.memories[first].folder, w.actions)
	}
	switch key.column {
	case exact:
		return b.runFor(ctx, key, "", w.actions)
	case coarse:
		return b.runFor(ctx, key, "", w.training)
	case misfit:
		return b.runFor(ctx, key, "", w.strange)
	case renamed, poisoned, stale:
		if err := b.remember(ctx, memoryKey{key.work, exact}); err != nil {
			return err
		}
		return b.forge(ctx, key)
	case outside:
		folder, err := b.outside.train(ctx, w)
		b.memories[key] = memory{folder: folder}
		return err
	}
	return nil
}

// runFor makes a memory: that of a worker that runs actions, and has what is in the folder from.
func (b *prefetchBench) runFor(ctx context.Context, key memoryKey, from string, actions []*testbed.Action) error {
	w := b.works[key.work]
	report.Progress("%s, what there is to know for %s", w.name, key.column)
	m := memory{folder: b.memoryFolder(key)}
	s := testbed.Setting{Method: vfs.FUSE, Slots: w.slots, Memory: from, Keep: m.folder}
	err := b.farm.WithWorker(ctx, s, func(far *testbed.Proxy) (err error) {
		_, m.actions, err = once(ctx, b.farm.Client, w.slots, actions, far)
		return err
	})
	if err != nil {
		return err
	}
	b.memories[key] = m
	return nil
}

func (b *prefetchBench) memoryFolder(key memoryKey) string {
	return filepath.Join(b.farm.Dir, "memory-"+key.work+"-"+string(key.column))
}

// distance is the one of a cell.
func (b *prefetchBench) distance(c cell) testbed.Distance {
	return testbed.Distance{RoundTrip: time.Duration(c.ms) * time.Millisecond, Bandwidth: int64(b.o.bandwidth) * 1e6}
}

// run takes a sample of a cell, and one of warm if there are fewer than runs.
func (b *prefetchBench) run(ctx context.Context, c cell) error {
	w := b.works[c.work]
	s := testbed.Setting{
		Distance: b.distance(c), Method: vfs.FUSE, Slots: w.slots, Memory: b.memories[memoryKey{c.work, c.column}].folder,
	}
	switch c.column {
	case allFirst:
		s.Method = vfs.HardLink
	case near:
		return b.runNear(ctx, c, s)
	case outside:
		return b.runOutside(ctx, c)
	}
	return b.farm.WithWorker(ctx, s, func(far *testbed.Proxy) error {
		cold, _, err := once(ctx, b.farm.Client, w.slots, w.actions, far)
		if err != nil {
			return err
		}
		b.samples[c] = append(b.samples[c], cold)
		if s.Method != vfs.FUSE {
			return nil
		}
		return b.again(ctx, c, w.actions, far)
	})
}

// again takes a sample of warm on a worker that has run the actions of a cell, if there are too
// few.
func (b *prefetchBench) again(ctx context.Context, c cell, actions []*testbed.Action, far *testbed.Proxy) error {
	warmed := c.warm()
	if len(b.samples[warmed]) >= b.o.Runs {
		return nil
	}
	second, _, err := once(ctx, b.farm.Client, b.works[c.work].slots, actions, far)
	if err != nil {
		return err
	}
	b.samples[warmed] = append(b.samples[warmed], second)
	return nil
}

// runNear is run for two workers of one build, of which the second one has the setting s and is
// cold.
func (b *prefetchBench) runNear(ctx context.Context, c cell, s testbed.Setting) error {
	w := b.works[c.work]
	s.Serves, s.Platform = true, client.Properties{"worker=cold"}
	first := testbed.Setting{Method: s.Method, Slots: s.Slots, Serves: true, Platform: client.Properties{"worker=first"}}
	return b.farm.WithWorkers(ctx, []testbed.Setting{first, s}, func(far []*testbed.Proxy) error {
		if _, _, err := once(ctx, b.farm.Client, w.slots, w.on(first.Platform), far[0]); err != nil {
			return err
		}
		cold, _, err := once(ctx, b.farm.Client, w.slots, w.on(s.Platform), far[1])
		if err != nil {
			return err
		}
		b.samples[c] = append(b.samples[c], cold)
		return b.again(ctx, c, w.on(s.Platform), far[1])
	})
}

// once runs actions, slots at a time, and adds up their results. It returns the actions.
func once(
	ctx context.Context, farm *testbed.Client, slots int, actions []*testbed.Action, far *testbed.Proxy,
) (s sample, ran []digest.Digest, err error) {
	results := make([]testbed.Result, len(actions))
	before, began := far.Received(), time.Now()
	group, ctx := errgroup.WithContext(ctx)
	// One more than run, so that the next one is there when a slot gets free.
	group.SetLimit(slots + 1)
	for i, a := range actions {
		group.Go(func() (err error) {
			results[i], err = farm.Execute(ctx, a)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return s, nil, err
	}
	s.seconds = time.Since(began).Seconds()
	if len(actions) == 1 {
		s.seconds = results[0].Seconds
		s.idle = s.seconds - results[0].Ran
	}
	s.profiles = map[string]int{}
	s.wire = float64(far.Received() - before)
	for _, r := range results {
		ran = append(ran, r.Action)
		s.cpu += r.CPU
		s.fetched += float64(r.Use.GetBytesFetched())
		s.read += float64(r.Use.GetBytesRead())
		s.stalled += r.Use.GetStalled().AsDuration().Seconds()
		s.hitFiles += float64(r.Ahead.GetForeseen().GetFiles())
		s.missedFiles += float64(r.Ahead.GetMissed().GetFiles() + r.Ahead.GetLate().GetFiles())
		s.wasted += float64(r.Ahead.GetUnused().GetBytes())
		s.profiles[r.Ahead.GetProfile()]++
	}
	return s, ran, nil
}
