package worker

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/farm/serve"
)

// workerOptions are the options of this benchmark, besides the common ones.
type workerOptions struct {
	report.Options
	noops, outputs int // number of actions in each run of a row
	headers        int // number of actions that read headers
}

// NewCommand returns the subcommand of this benchmark.
func NewCommand() *cobra.Command {
	o := &workerOptions{}
	cmd := &cobra.Command{
		Use: "worker", Short: "measure what a worker adds to its commands", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(workerNames()); err != nil {
				return err
			}
			if o.noops < 8 || o.outputs < 1 || o.headers < 1 {
				return errors.New("--noops must be at least 8, --outputs and --headers at least 1")
			}
			return benchWorker(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.Flags(cmd, 3, "runs of each row")
	o.DiskFlags(cmd)
	cmd.Flags().IntVar(&o.noops, "noops", 400, "`actions` that do nothing in each run of a row")
	cmd.Flags().IntVar(&o.outputs, "outputs", 20, "`actions` of 50 MB in each run of a row")
	cmd.Flags().IntVar(&o.headers, "headers", 1000, "`actions` that read headers, for the rows of verification")
	return cmd
}

// benchWorker measures the selected rows and reports them, even if some failed.
func benchWorker(ctx context.Context, o *workerOptions, w io.Writer) (err error) {
	dir, leave, err := report.WorkFolder(o.Data, o.Keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	defer serve.PaceMemory(ctx, report.MemoryBytes, true)()
	facts := report.Machine(dir)
	f, err := testbed.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := newWorkerBench(f, o)
	err = b.measure(ctx)
	rows := b.rows()
	name := o.File("worker", err)
	_, printErr := fmt.Fprintf(w, "%s; %d runs\n\n", facts, o.Runs)
	return errors.Join(err, printErr, report.Print(w, rows), report.Write(o.Out, name, rows))
}
