package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/bench/floor"
	"github.com/forerunner-build/forerunner/bench/report"
)

// localOptions are the options of this benchmark, besides the common ones.
type localOptions struct {
	report.Options
	programs string // folder of the measured programs
	compare  string // folder of other programs, measured in alternation; empty: none
	bazel    string
	packages int   // of the workspace, with perPackage actions each
	warm     int   // unmeasured builds of each strategy
	noops    int   // actions in each run
	output   int64 // bytes of a large output
}

// NewCommand returns the subcommand of this benchmark.
func NewCommand() *cobra.Command {
	o := &localOptions{}
	cmd := &cobra.Command{
		Use: "local", Short: "measure a farm on one machine against no farm", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return benchLocal(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.Flags(cmd, 3, "runs of each row")
	o.DiskFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.programs, "programs", "", "`folder` of the programs to measure (default the folder of this program)")
	f.StringVar(&o.compare, "compare", "", "`folder` of another build's programs, measured in alternation for comparison")
	f.StringVar(&o.bazel, "bazel", "bazel", "`program` to use as Bazel")
	f.IntVar(&o.packages, "packages", 60, fmt.Sprintf("`packages` of the workspace, with %d actions each", perPackage))
	f.IntVar(&o.warm, "warm", 3, "unmeasured `builds` of each strategy before the runs: Bazel's server becomes faster for as long as Java compiles its code")
	f.Int64Var(&o.output, "output-bytes", 300_000_000, "`bytes` of a large output")
	f.IntVar(&o.noops, "noops", 400, "`actions` that do nothing in each run")
	return cmd
}

func (o *localOptions) validate() error {
	if err := o.Validate(rowNames()); err != nil {
		return err
	}
	if o.packages < 1 || o.noops < 8 || o.output < 1 || o.warm < 0 {
		return errors.New("--packages and --output-bytes must be at least 1, --noops at least 8, --warm at least 0")
	}
	if o.programs == "" {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		o.programs = filepath.Dir(program)
	}
	var err error
	for _, folder := range []*string{&o.programs, &o.compare} {
		if *folder != "" && err == nil {
			*folder, err = filepath.Abs(*folder)
		}
	}
	return err
}

// folders returns the folders of the programs that are measured in alternation.
func (o *localOptions) folders() []string {
	if o.compare == "" {
		return []string{o.programs}
	}
	return []string{o.programs, o.compare}
}

// benchLocal measures the requested rows and reports them, even after an error.
func benchLocal(ctx context.Context, o *localOptions, w io.Writer) (err error) {
	dir, leave, err := report.WorkFolder(o.Data, o.Keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	facts := report.Machine(dir)
	b := newLocalBench(o, dir)
	err = b.measure(ctx)
	rows := b.rows()
	name := o.File("local", err)
	_, printErr := fmt.Fprintf(w, "%s; %d runs\n\n", facts, o.Runs)
	return errors.Join(err, printErr, report.Print(w, rows), report.Write(o.Out, name, rows))
}

// A localBench has the results by folder of the programs. Results without our programs are under
// "".
type localBench struct {
	o       *localOptions
	dir     string
	starts  int // number of started farms, to name their folders
	builds  map[buildCell][]buildSample
	noops   map[noopCell][]noopSample
	outputs map[string][]float64 // bytes written for each byte
	floors  floor.Floors
}

func newLocalBench(o *localOptions, dir string) *localBench {
	return &localBench{o: o, dir: dir, builds: map[buildCell][]buildSample{}, noops: map[noopCell][]noopSample{}, outputs: map[string][]float64{}}
}

// measure takes all samples. Each run measures every cell once; each run starts with another cell.
func (b *localBench) measure(ctx context.Context) error {
	if err := b.measureNoops(ctx); err != nil {
		return err
	}
	if err := b.measureOutputs(ctx); err != nil {
		return err
	}
	return b.measureBuilds(ctx)
}

// turn returns the cells in the order of a run.
func turn[T any](cells []T, run int) []T {
	n := run % max(len(cells), 1)
	return append(append([]T(nil), cells[n:]...), cells[:n]...)
}
