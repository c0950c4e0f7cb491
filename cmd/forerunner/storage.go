package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/web/text"
)

func storageCommand() *cobra.Command {
	cmd := readCommand(manual{
		"storage", "show how full stores are, their damaged blobs and the progress of their scrub",
		"Shows the scheduler's embedded storage, if it has one, and the stores of the workers: how full they are, how many\n" +
			"damaged blobs they have found since their program started, and the progress of the scrub, which reads and verifies all\n" +
			"blobs (tuning.scrub_every of forerunner-scheduler and forerunner-worker).",
		"forerunner storage --watch=1m",
	},
		func(ctx context.Context, c *adminCall, _ []string) error {
			return answer(ctx, c, c.ListStores, &admin.ListStoresRequest{}, c.printStores)
		})
	cmd.Args = cobra.NoArgs
	return cmd
}

func (c *adminCall) printStores(resp *admin.ListStoresResponse) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "USED\tOF\tBLOBS\tDAMAGED\tASIDE\tSCRUBBED\tENDS IN\tNEXT IN\tSTORE")
	for _, s := range resp.GetStores() {
		h := s.GetHealth()
		scrubbed, ends, next := "-", "-", "-"
		if scrub := h.GetScrub(); scrub != nil {
			scrubbed = fmt.Sprintf("%.0f %%", 100*scrub.GetDone())
			if due := text.In(scrub.GetDue()); scrub.GetEnded() != nil {
				next = due
			} else {
				ends = dash(due)
			}
		}
		name := "the scheduler's"
		if len(s.GetWorker()) > 0 {
			name = names.Pairs(s.GetWorker())
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", text.Bytes(s.GetBytes()), text.Bytes(s.GetMaxBytes()), s.GetBlobs(),
			h.GetDamagedBlobs(), h.GetAsideBlobs(), scrubbed, ends, next, name)
	}
	return w.Flush()
}
