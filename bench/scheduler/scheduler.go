package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/bench/report"
)

// NewCommand returns the subcommand of this benchmark.
func NewCommand() *cobra.Command {
	o := &report.Options{}
	cmd := &cobra.Command{
		Use: "scheduler", Short: "measure the scheduler: decisions in virtual time, calls over gRPC", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var names []string
			for _, p := range schedulerParts() {
				names = append(names, p.rows...)
			}
			if err := o.Validate(names); err != nil {
				return err
			}
			return benchScheduler(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.Flags(cmd, 3, "runs of each row")
	o.DiskFlags(cmd)
	cmd.Flags().StringVar(&o.Profile, "profile", "", "existing `folder` for CPU and heap profiles of the scheduler")
	return cmd
}

// A schedulerPart measures some of the rows together. Rows that it returns with an error were
// measured before the error.
type schedulerPart struct {
	rows    []string
	measure func(ctx context.Context, o *report.Options) ([]report.Row, error)
}

func schedulerParts() []schedulerPart {
	return []schedulerPart{
		{decisionNames(), benchDecisions},
		{holdNames(), benchHolds},
		{[]string{"jain"}, benchJain},
		{grpcNames(), benchGRPC},
	}
}

// benchScheduler measures the requested parts and reports them.
func benchScheduler(ctx context.Context, o *report.Options, w io.Writer) error {
	facts := report.Machine(".")
	var rows []report.Row
	var err error
	for _, p := range schedulerParts() {
		if !o.Wants(p.rows...) {
			continue
		}
		var more []report.Row
		more, err = p.measure(ctx, o)
		for _, r := range more {
			if o.Wants(r.Name) {
				rows = append(rows, r)
			}
		}
		if err != nil {
			break
		}
	}
	if len(rows) == 0 {
		return err
	}
	name := o.File("scheduler", err)
	_, printErr := fmt.Fprintf(w, "%s; %d runs\n\n", facts, o.Runs)
	return errors.Join(err, printErr, report.Print(w, rows), report.Write(o.Out, name, rows))
}
