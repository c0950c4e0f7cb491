package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/text"
)

func storageCommand() *cobra.Command {
	return readCommand("storage", "show what stores hold, and how far they are with reading it again",
		"Shows the storage of the scheduler, if it is embedded, and the stores of the workers: how full they are,\n"+
			"what they found damaged since their program started, and how far their scrub is, which reads everything\n"+
			"again (--scrub-every of forerunner-scheduler and forerunner-worker).",
		func(ctx context.Context, c *adminCall, args []string) error {
			if len(args) > 0 {
				return errors.New("storage takes no arguments")
			}
			return answer(ctx, c, c.ListStores, &admin.ListStoresRequest{}, c.printStores)
		})
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
			name = text.Pairs(s.GetWorker())
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", text.Bytes(s.GetBytes()), text.Bytes(s.GetMaxBytes()), s.GetBlobs(),
			h.GetDamagedBlobs(), h.GetAsideBlobs(), scrubbed, ends, next, name)
	}
	return w.Flush()
}
