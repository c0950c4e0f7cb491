package bench

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// workerOptions are what this benchmark can be told beside the options of all.
type workerOptions struct {
	options
	noops, outputs int // actions in each run of a row
	headers        int // actions that read headers
}

func newWorkerCommand() *cobra.Command {
	o := &workerOptions{}
	cmd := &cobra.Command{
		Use: "worker", Short: "measure what a worker adds to its commands", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(workerNames()); err != nil {
				return err
			}
			if o.noops < 8 || o.outputs < 1 || o.headers < 1 {
				return errors.New("--noops must be at least 8, --outputs and --headers at least 1")
			}
			return benchWorker(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.flags(cmd, 3, "runs of each row")
	o.diskFlags(cmd)
	cmd.Flags().IntVar(&o.noops, "noops", 400, "`actions` that do nothing in each run of a row")
	cmd.Flags().IntVar(&o.outputs, "outputs", 20, "`actions` of 50 MB in each run of a row")
	cmd.Flags().IntVar(&o.headers, "headers", 1000, "`actions` that read headers, for the rows of verification")
	return cmd
}

// benchWorker measures what is wanted and reports it, also when something failed.
func benchWorker(ctx context.Context, o *workerOptions, w io.Writer) (err error) {
	dir, leave, err := workFolder(o.data, o.keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	facts := machine(dir)
	f, err := startFarm(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	b := newWorkerBench(f, o)
	err = b.measure(ctx)
	rows := b.rows()
	name := o.file("worker", err)
	_, printErr := fmt.Fprintf(w, "%s; %d runs\n\n", facts, o.runs)
	return errors.Join(err, printErr, printRows(w, rows), writeRows(o.out, name, rows))
}
