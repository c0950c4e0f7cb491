package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/vfs"
)

// quick is how many times more runs quick rows have, which take a fraction of a second.
const quick = 3

// NewCommand returns the subcommand of this benchmark.
func NewCommand() *cobra.Command {
	o := &report.Options{}
	cmd := &cobra.Command{
		Use: "vfs", Short: "compare input roots with plain folders on the same disk", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(rowNames()); err != nil {
				return err
			}
			return benchVFS(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.Flags(cmd, 5, "runs of each row; quick rows get three times as many")
	o.DiskFlags(cmd)
	return cmd
}

// benchVFS makes the inputs, measures all requested rows and reports them, even if a row failed.
func benchVFS(ctx context.Context, o *report.Options, w io.Writer) (err error) {
	dir, leave, err := report.WorkFolder(o.Data, o.Keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	in, err := makeInputs(ctx, dir, needsOf(o))
	if err != nil {
		return err
	}
	s, err := openSite(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	facts := report.Machine(dir)
	b := &vfsBench{site: s, in: in, o: o}
	rows, err := b.all(ctx)
	name := o.File("vfs", err)
	if len(rows) == 0 {
		return err
	}
	_, printErr := fmt.Fprintf(w, "%s; %d runs, quick rows %d; passthrough %t; ratios are the time of a plain folder over ours\n\n",
		facts, o.Runs, quick*o.Runs, b.passthrough)
	return errors.Join(err, printErr, report.Print(w, rows), report.Write(o.Out, name, rows))
}

type vfsBench struct {
	site        *site
	in          *inputs
	o           *report.Options
	passthrough bool
	rows        []report.Row
}

// all measures the requested rows: first those that need a new worker for each run, then those on a
// worker that has shown the trees before.
func (b *vfsBench) all(ctx context.Context) ([]report.Row, error) {
	report.Progress("storing the inputs")
	if err := b.site.upload(ctx, b.in.dir); err != nil {
		return nil, err
	}
	if _, err := b.site.child(ctx, "touch", b.in.dir); err != nil {
		return nil, err
	}
	b.sync() // otherwise write-back would disturb the first rows
	b.passthrough = b.site.roots.Passthrough()
	var errs []error
	for _, ofFirst := range []bool{false, true} {
		for _, c := range comparisons() {
			if (c.root == first) != ofFirst || !b.o.Wants(c.rows()...) {
				continue
			}
			if err := b.compare(ctx, c); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
			}
			if ctx.Err() != nil {
				return b.rows, ctx.Err()
			}
		}
		if !ofFirst {
			errs = append(errs, b.rootRows(ctx))
		}
	}
	return b.rows, errors.Join(errs...)
}

// A side is a place to work in: a plain folder or a root.
type side struct {
	*vfsBench
	dir string
}

// A comparison is a row that compares the same work on both sides.
type comparison struct {
	name, wanted, note string
	root               rootOf
	inMemory           bool // the writable layer is in memory
	quick              bool
	cpu                string // name of another row, for the CPU seconds of this process per run
	work               func(side, context.Context) (time.Duration, error)
}

// A rootOf says in which root a run works.
type rootOf int

const (
	later rootOf = iota // after three roots with the same subtrees
	first               // the first root of a worker that has just started
	warm                // after the same work in this root
	again               // after the same work in the previous root
)

func (c *comparison) rows() []string {
	if c.cpu != "" {
		return []string{c.name, c.cpu}
	}
	return []string{c.name}
}

// figures are the results of all runs of a comparison, in seconds.
type figures struct{ plain, ours, ratio, cpu []float64 }

// compare measures one comparison and adds its rows.
func (b *vfsBench) compare(ctx context.Context, c comparison) error {
	if why := b.lacks(c); why != "" {
		b.rows = append(b.rows, report.NotMeasured(c.name, "ratio", why))
		return nil
	}
	if c.root != first {
		if err := b.warmUp(ctx); err != nil {
			return err
		}
	}
	// The first pass is not measured, because it also writes back dirty pages of others.
	if _, err := c.work(side{b, b.in.dir}, ctx); err != nil {
		return err
	}
	if err := removeMade(b.in.dir); err != nil {
		return err
	}
	if c.root != first {
		if _, _, err := b.inRoot(ctx, c); err != nil {
			return err
		}
	}
	runs := b.o.Runs
	if c.quick {
		runs *= quick
	}
	var f figures
	for i := range runs {
		plain, ours, cpu, err := b.pair(ctx, c, i%2 == 1)
		if err != nil {
			return err
		}
		f.plain = append(f.plain, plain)
		f.ours = append(f.ours, ours)
		f.ratio = append(f.ratio, plain/ours)
		f.cpu = append(f.cpu, cpu)
		report.Progress("%s, run %d of %d: plain %s, ours %s, ratio %s", c.name, i+1, runs,
			report.FormatSeconds(plain), report.FormatSeconds(ours), report.FormatValue(plain/ours))
	}
	b.report(c, f)
	return nil
}

func (b *vfsBench) report(c comparison, f figures) {
	r := report.NewRow(c.name, report.Median(f.ratio), "ratio")
	r.Wanted = c.wanted
	r.Baseline = fmt.Sprintf("%s %s", report.FileSystem(b.in.dir), report.FormatSeconds(report.Median(f.plain)))
	r.Note = fmt.Sprintf("ours %s; %s, %d runs; fastest of each %s", report.FormatSeconds(report.Median(f.ours)),
		report.Spread(f.ratio), len(f.ratio), report.FormatValue(slices.Min(f.plain)/slices.Min(f.ours)))
	if note := b.noteOf(c); note != "" {
		r.Note += "; " + note
	}
	b.rows = append(b.rows, r)
	if c.cpu != "" {
		r := report.NewRow(c.cpu, report.Median(f.cpu), "s")
		r.Note = fmt.Sprintf("CPU of the serving process in %s, mount and unmount included; %s, %d runs",
			c.name, report.Spread(f.cpu), len(f.cpu))
		b.rows = append(b.rows, r)
	}
}

// pair does the work once on each side.
func (b *vfsBench) pair(ctx context.Context, c comparison, oursFirst bool) (plain, ours, cpu float64, err error) {
	steps := []func() error{
		func() error {
			took, err := c.work(side{b, b.in.dir}, ctx)
			plain = took.Seconds()
			return errors.Join(err, removeMade(b.in.dir))
		},
		func() error {
			var err error
			ours, cpu, err = b.inRoot(ctx, c)
			return err
		},
	}
	if oursFirst {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		b.sync() // so that each side waits only for its own writes
		if err := step(); err != nil {
			return 0, 0, 0, err
		}
	}
	return plain, ours, cpu, nil
}

// sync writes back the dirty pages of all programs on the machine, which can take a minute. In
// tests it does nothing.
func (b *vfsBench) sync() {
	if !b.site.partly() {
		unix.Sync()
	}
}

// inRoot does the work once in a new root.
func (b *vfsBench) inRoot(ctx context.Context, c comparison) (took, cpu float64, err error) {
	if c.root == first {
		if err := b.site.restart(); err != nil {
			return 0, 0, err
		}
	}
	roots := b.site.roots
	if c.inMemory {
		if roots, err = b.site.memoryRoots(); err != nil {
			return 0, 0, err
		}
	}
	if c.root == again {
		if _, err := b.once(ctx, c, roots); err != nil {
			return 0, 0, err
		}
	}
	before := report.CPUTime()
	d, err := b.once(ctx, c, roots)
	return d.Seconds(), (report.CPUTime() - before).Seconds(), err
}

func (b *vfsBench) once(ctx context.Context, c comparison, roots *vfs.FS) (took time.Duration, err error) {
	r, err := b.site.root(ctx, roots, b.site.subtrees)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Err(), r.Close()) }()
	if c.root == warm {
		if _, err := c.work(side{b, r.Path()}, ctx); err != nil {
			return 0, err
		}
	}
	return c.work(side{b, r.Path()}, ctx)
}
