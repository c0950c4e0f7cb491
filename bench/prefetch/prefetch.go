package prefetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
)

// prefetchOptions are the options of this benchmark, besides the common ones.
type prefetchOptions struct {
	report.Options
	module    string
	programs  string // folder of the programs for column outside
	bandwidth int    // MB/s
	all       bool
}

// NewCommand returns the subcommand of this benchmark.
func NewCommand() *cobra.Command {
	o := &prefetchOptions{}
	cmd := &cobra.Command{
		Use: "prefetch", Short: "measure actions whose inputs are far away", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return benchPrefetch(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.Flags(cmd, 3, "runs of each row")
	o.DiskFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.module, "module", filepath.Join("testdata", "demo"), "`folder` of the Go module to build")
	f.StringVar(&o.programs, "programs", "", "`folder` of the programs to measure as separate processes (default the folder of this program)")
	f.IntVar(&o.bandwidth, "bandwidth", 0, "MB/s to and from the storage; 0: no limit")
	f.BoolVar(&o.all, "all", false, "measure every way of fetching inputs at every distance, which takes an hour")
	return cmd
}

func (o *prefetchOptions) validate() error {
	if err := o.Validate(prefetchNames()); err != nil {
		return err
	}
	if o.programs == "" {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		o.programs = filepath.Dir(program)
	}
	return nil
}

// A column is a way to get inputs to an action.
type column string

// The columns. All except warm start with empty caches.
const (
	allFirst    column = "all_first"    // downloads all inputs before the start
	none        column = "none"         // reads through FUSE, without a profile
	near        column = "near"         // as none, on a worker with a peer that has run the actions
	coarse      column = "coarse"       // with the profile of other sources of the same kind
	exact       column = "exact"        // with the profile of the same command
	misfit      column = "misfit"       // with the profile of another program of the same kind
	renamed     column = "renamed"      // with the profile of the same command, under other file names
	poisoned    column = "poisoned"     // with a profile that has every file
	stale       column = "stale"        // with a profile of as many files as the command reads, none of which it reads
	warm        column = "warm"         // reads through FUSE again, on the same worker
	outside     column = "outside"      // as exact, in separate processes
	outsideWarm column = "outside_warm" // as warm, after outside
)

// columns returns all columns in the order in which they are printed.
func columns() []column {
	return []column{
		allFirst, none, near, coarse, exact, misfit, misfit.again(), renamed, renamed.again(), poisoned, poisoned.again(),
		stale, stale.again(), warm, outside, outsideWarm,
	}
}

// againSuffix is that of a column with what is known after one run with another one.
const againSuffix = "_again"

// again is the column with what is known after one run with c.
func (c column) again() column { return c + againSuffix }

// before is the column that c is again, if there is one.
func (c column) before() (column, bool) {
	before, ok := strings.CutSuffix(string(c), againSuffix)
	return column(before), ok
}

// A cell is one unit of measurement.
type cell struct {
	work   string // such as workGo
	column column
	ms     int // round-trip time
}

// warm returns the cell that this one is compared with.
func (c cell) warm() cell {
	if c.column == outside {
		return cell{c.work, outsideWarm, c.ms}
	}
	return cell{c.work, warm, c.ms}
}

// A sample is one run of a workload.
type sample struct {
	seconds       float64 // until all actions have ended
	fetched, read float64 // bytes, as counted by the worker
	wire          float64 // bytes sent by the storage
	stalled       float64 // sum over commands of the seconds in which they waited for inputs
	cpu           float64 // CPU seconds of all commands
	serving       float64 // CPU seconds of the worker itself; column outside only
	idle          float64 // seconds in which no command ran or the command only waited; a single action only
	// Files fetched in advance, or on demand, summed over the actions.
	hitFiles, missedFiles, wasted float64        // wasted is in bytes
	profiles                      map[string]int // number of actions by profile
}

type prefetchBench struct {
	farm     *testbed.Farm
	outside  *outsideFarm // nil: not started
	o        *prefetchOptions
	works    map[string]*workload
	lacks    map[string]string // why a workload or column outside is not available
	memories map[memoryKey]memory
	samples  map[cell][]sample
	costs    []pairCost
}

// benchPrefetch measures the requested rows and reports them, even after an error.
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
	defer func() { err = errors.Join(err, b.close()) }()
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
		memories: map[memoryKey]memory{}, samples: map[cell][]sample{},
	}
}

// close ends everything that prepare has started.
func (b *prefetchBench) close() error {
	if b.outside == nil {
		return nil
	}
	return b.outside.close()
}

// prepare uploads the inputs to the storage.
func (b *prefetchBench) prepare(ctx context.Context) error {
	needs := map[string]bool{workGo: b.wantsCost()}
	fromOutside := false
	for _, c := range b.wanted() {
		needs[c.work] = true
		fromOutside = fromOutside || c.column == outside
	}
	for _, m := range makers() {
		if !needs[m.work] {
			continue
		}
		report.Progress("storing %s", m.inputs)
		w, err := m.make(ctx, b)
		if l, ok := errors.AsType[lack](err); ok {
			report.Progress("%s", l)
			b.lacks[m.work] = string(l)
			continue
		}
		if err != nil {
			return fmt.Errorf("store %s: %w", m.inputs, err)
		}
		b.works[m.work] = w
	}
	if fromOutside {
		if err := b.startOutside(ctx); err != nil {
			return err
		}
	}
	unix.Sync() // otherwise write-back would disturb the first rows
	return nil
}

// measure takes all samples. Each run measures every cell once, so that disturbances of the machine
// affect all cells.
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
			report.Progress("run %d of %d, %s, %s at %d ms: %s, waited %s, %.1f MB fetched, %.0f files prefetched, %.0f not", run+1, b.o.Runs,
				b.works[c.work].name, c.column, c.ms, report.FormatSeconds(took.seconds), report.FormatSeconds(took.stalled), took.fetched/1e6, took.hitFiles, took.missedFiles)
		}
		if err := b.cost(ctx, run); err != nil {
			return fmt.Errorf("cost when warm: %w", err)
		}
	}
	return nil
}

// can reports whether a cell can be measured on this machine.
func (b *prefetchBench) can(c cell) bool {
	return b.works[c.work] != nil && (c.column != outside || b.outside != nil)
}
