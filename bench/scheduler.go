package bench

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newSchedulerCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "scheduler", Short: "measure the scheduler: decisions in virtual time, calls over gRPC", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var names []string
			for _, p := range schedulerParts() {
				names = append(names, p.rows...)
			}
			if err := o.validate(names); err != nil {
				return err
			}
			return benchScheduler(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.flags(cmd, 3, "runs of each row")
	o.diskFlags(cmd)
	cmd.Flags().StringVar(&o.profile, "profile", "", "existing `folder` for CPU and heap profiles of what is measured")
	return cmd
}

// A schedulerPart measures some of the rows together. What measure returns beside
// an error was measured before it.
type schedulerPart struct {
	rows    []string
	measure func(ctx context.Context, o *options) ([]row, error)
}

func schedulerParts() []schedulerPart {
	return []schedulerPart{
		{decisionNames(), benchDecisions},
		{[]string{"jain"}, benchJain},
		{grpcNames(), benchGRPC},
	}
}

// benchScheduler measures the parts that are wanted, and reports them.
func benchScheduler(ctx context.Context, o *options, w io.Writer) error {
	facts := machine(".")
	var rows []row
	var err error
	for _, p := range schedulerParts() {
		if !o.wants(p.rows...) {
			continue
		}
		var more []row
		more, err = p.measure(ctx, o)
		for _, r := range more {
			if o.wants(r.Name) {
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
	name := o.file("scheduler", err)
	_, printErr := fmt.Fprintf(w, "%s; %d runs\n\n", facts, o.runs)
	return errors.Join(err, printErr, printRows(w, rows), writeRows(o.out, name, rows))
}
