package prefetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/vfs"
)

// prefetchOptions are what this benchmark can be told beside the options of all.
type prefetchOptions struct {
	report.Options
	module    string
	bandwidth int // MB/s
	all       bool
}

// NewCommand returns the subcommand of this benchmark.
func NewCommand() *cobra.Command {
	o := &prefetchOptions{}
	cmd := &cobra.Command{
		Use: "prefetch", Short: "measure actions whose inputs are far away", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(prefetchNames()); err != nil {
				return err
			}
			return benchPrefetch(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.Flags(cmd, 3, "runs of each row")
	o.DiskFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.module, "module", filepath.Join("testdata", "demo"), "folder of the Go module to build")
	f.IntVar(&o.bandwidth, "bandwidth", 0, "MB/s to and from the storage; 0: no limit")
	f.BoolVar(&o.all, "all", false, "measure every way of fetching at every distance; takes an hour")
	return cmd
}

// A column is a way of getting inputs to an action.
type column string

// The columns, with empty caches but for warm.
const (
	allFirst column = "all_first" // downloaded before the start
	none     column = "none"      // read through FUSE, never seen before
	near     column = "near"      // as none, on a worker whose neighbour has run them
	coarse   column = "coarse"    // with what other sources of the kind read
	exact    column = "exact"     // with what the same command read
	misfit   column = "misfit"    // with what another program of the same kind read
	warm     column = "warm"      // read through FUSE once more, on the same worker
)

// A cell is what is measured as one.
type cell struct {
	work   string // workGo or workCXX
	column column
	ms     int // round trip
}

const (
	workGo  = "go"
	workCXX = "cxx"
)

// A sample is one run of a workload.
type sample struct {
	seconds       float64 // until all actions are done
	fetched, read float64 // bytes, as the worker counts them
	wire          float64 // bytes that the storage sent
	stalled       float64 // seconds that commands waited, summed
	cpu           float64 // seconds that commands took of the processors, summed
	idle          float64 // seconds in which no command ran, or all it did was wait; of one action alone
	// Of what was fetched ahead or had to be, summed over the actions.
	hitFiles, missedFiles, wasted float64        // the last in bytes
	profiles                      map[string]int // how many actions had which
}

type prefetchBench struct {
	farm     *testbed.Farm
	o        *prefetchOptions
	works    map[string]*workload
	lacks    map[string]string // why a workload is not there
	memories map[memoryKey]string
	samples  map[cell][]sample
	costs    []pairCost
}

// A memoryKey says what was remembered.
type memoryKey struct {
	work   string
	column column
}

// benchPrefetch measures what is wanted and reports it, also when something failed.
func benchPrefetch(ctx context.Context, o *prefetchOptions, w io.Writer) (err error) {
	dir, leave, err := report.WorkFolder(o.Data, o.Keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	facts := report.Machine(dir)
	f, err := testbed.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := newPrefetchBench(f, o)
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if o.bandwidth > 0 {
		facts += fmt.Sprintf("; %d MB/s to the storage", o.bandwidth)
	}
	began := time.Now()
	err = b.measure(ctx)
	rows := b.rows()
	name := o.File("prefetch", err)
	_, printErr := fmt.Fprintf(w, "%s; %d runs, %s; ratios are the time with an empty cache over the time with a warm one\n\n",
		facts, o.Runs, time.Since(began).Round(time.Second))
	return errors.Join(err, printErr, report.Print(w, rows), b.printCells(w), report.Write(o.Out, name, rows))
}

func newPrefetchBench(f *testbed.Farm, o *prefetchOptions) *prefetchBench {
	return &prefetchBench{
		farm: f, o: o, works: map[string]*workload{}, lacks: map[string]string{},
		memories: map[memoryKey]string{}, samples: map[cell][]sample{},
	}
}

// prepare brings the inputs to the storage.
func (b *prefetchBench) prepare(ctx context.Context) (err error) {
	needs := map[string]bool{}
	for _, c := range b.wanted() {
		needs[c.work] = true
	}
	if needs[workGo] || b.wantsCost() {
		report.Progress("storing the Go SDK")
		if b.works[workGo], err = goWork(ctx, b.farm, b.o.module); err != nil {
			return fmt.Errorf("store the Go SDK: %w", err)
		}
	}
	if needs[workCXX] {
		report.Progress("storing the headers of g++")
		if b.works[workCXX], b.lacks[workCXX], err = cxxWork(ctx, b.farm); err != nil {
			return fmt.Errorf("store headers: %w", err)
		}
	}
	unix.Sync() // later writing back would disturb the first rows
	return nil
}

// measure takes all samples: in each run every cell has its turn, so that what the
// machine does meanwhile meets all of them.
func (b *prefetchBench) measure(ctx context.Context) error {
	if err := b.train(ctx); err != nil {
		return err
	}
	for run := range b.o.Runs {
		for _, c := range b.wanted() {
			if !b.can(c) || run > 0 && slow(c) {
				continue
			}
			if err := b.run(ctx, c); err != nil {
				return fmt.Errorf("%s %s at %d ms: %w", c.work, c.column, c.ms, err)
			}
			took := b.samples[c][len(b.samples[c])-1]
			report.Progress("run %d of %d, %s, %s at %d ms: %s, waited %s, %.1f MB fetched, %.0f files foreseen, %.0f not", run+1, b.o.Runs,
				b.works[c.work].name, c.column, c.ms, report.FormatSeconds(took.seconds), report.FormatSeconds(took.stalled), took.fetched/1e6, took.hitFiles, took.missedFiles)
		}
		if err := b.cost(ctx, run); err != nil {
			return fmt.Errorf("cost when warm: %w", err)
		}
	}
	return nil
}

// can reports whether there is what a cell needs.
func (b *prefetchBench) can(c cell) bool {
	return b.works[c.work] != nil
}

// train has workers see what the cells take for known.
func (b *prefetchBench) train(ctx context.Context) error {
	for _, c := range b.wanted() {
		key := memoryKey{c.work, c.column}
		if !b.can(c) || b.memories[key] != "" || c.column != exact && c.column != coarse && c.column != misfit {
			continue
		}
		w := b.works[c.work]
		actions := w.actions
		switch c.column {
		case coarse:
			actions = w.training
		case misfit:
			actions = w.strange
		}
		keep := filepath.Join(b.farm.Dir, "memory-"+c.work+"-"+string(c.column))
		report.Progress("%s, what there is to know for %s", w.name, c.column)
		err := b.farm.WithWorker(ctx, testbed.Setting{Method: vfs.FUSE, Slots: w.slots, Keep: keep}, func(far *testbed.Proxy) error {
			_, err := b.once(ctx, w.slots, actions, far)
			return err
		})
		if err != nil {
			return fmt.Errorf("train %s %s: %w", c.work, c.column, err)
		}
		b.memories[key] = keep
	}
	return nil
}

// distance is the one of a cell.
func (b *prefetchBench) distance(c cell) testbed.Distance {
	return testbed.Distance{RoundTrip: time.Duration(c.ms) * time.Millisecond, Bandwidth: int64(b.o.bandwidth) * 1e6}
}

// run takes a sample of a cell, and one of warm if there are fewer than runs.
func (b *prefetchBench) run(ctx context.Context, c cell) error {
	w := b.works[c.work]
	s := testbed.Setting{
		Distance: b.distance(c), Method: vfs.FUSE, Slots: w.slots, Memory: b.memories[memoryKey{c.work, c.column}],
	}
	switch c.column {
	case allFirst:
		s.Method = vfs.HardLink
	case near:
		return b.runNear(ctx, c, s)
	}
	return b.farm.WithWorker(ctx, s, func(far *testbed.Proxy) error {
		cold, err := b.once(ctx, w.slots, w.actions, far)
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

// again takes a sample of warm on a worker that has run the actions of a cell, if there are too few.
func (b *prefetchBench) again(ctx context.Context, c cell, actions []*testbed.Action, far *testbed.Proxy) error {
	warmed := cell{c.work, warm, c.ms}
	if len(b.samples[warmed]) >= b.o.Runs {
		return nil
	}
	second, err := b.once(ctx, b.works[c.work].slots, actions, far)
	if err != nil {
		return err
	}
	b.samples[warmed] = append(b.samples[warmed], second)
	return nil
}

// runNear is run for two workers of one build, of which the second one is as s says and cold.
func (b *prefetchBench) runNear(ctx context.Context, c cell, s testbed.Setting) error {
	w := b.works[c.work]
	s.Serves, s.Platform = true, client.Properties{"worker=cold"}
	first := testbed.Setting{Method: s.Method, Slots: s.Slots, Serves: true, Platform: client.Properties{"worker=first"}}
	return b.farm.WithWorkers(ctx, []testbed.Setting{first, s}, func(far []*testbed.Proxy) error {
		if _, err := b.once(ctx, w.slots, w.on(first.Platform), far[0]); err != nil {
			return err
		}
		cold, err := b.once(ctx, w.slots, w.on(s.Platform), far[1])
		if err != nil {
			return err
		}
		b.samples[c] = append(b.samples[c], cold)
		return b.again(ctx, c, w.on(s.Platform), far[1])
	})
}

// once runs actions, slots at a time, and adds up what they say.
func (b *prefetchBench) once(ctx context.Context, slots int, actions []*testbed.Action, far *testbed.Proxy) (s sample, err error) {
	results := make([]testbed.Result, len(actions))
	before, began := far.Received(), time.Now()
	group, ctx := errgroup.WithContext(ctx)
	// One more than run, so that the next one is there when a slot gets free.
	group.SetLimit(slots + 1)
	for i, a := range actions {
		group.Go(func() (err error) {
			results[i], err = b.farm.Execute(ctx, a)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return s, err
	}
	s.seconds = time.Since(began).Seconds()
	if len(actions) == 1 {
		s.seconds = results[0].Seconds
		s.idle = s.seconds - results[0].Ran
	}
	s.profiles = map[string]int{}
	s.wire = float64(far.Received() - before)
	for _, r := range results {
		s.cpu += r.CPU
		s.fetched += float64(r.Use.GetBytesFetched())
		s.read += float64(r.Use.GetBytesRead())
		s.stalled += r.Use.GetStalled().AsDuration().Seconds()
		s.hitFiles += float64(r.Ahead.GetForeseen().GetFiles())
		s.missedFiles += float64(r.Ahead.GetMissed().GetFiles() + r.Ahead.GetLate().GetFiles())
		s.wasted += float64(r.Ahead.GetUnused().GetBytes())
		s.profiles[r.Ahead.GetProfile()]++
	}
	return s, nil
}
