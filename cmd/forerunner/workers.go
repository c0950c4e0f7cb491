package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/web/text"
)

// drainPoll is how often drain --wait looks whether it may end.
const drainPoll = time.Second

const workerPatterns = `A pattern is one or more of name=value of a worker's identity (its --id and position), separated by commas or
as arguments; all must match. In values, "*" matches any text and "?" any one character.`

func workersCommand() *cobra.Command {
	cmd := listWorkersCommand()
	cmd.Use, cmd.Short, cmd.Args = "workers", "list, drain and undrain workers", cobra.NoArgs
	cmd.AddCommand(listWorkersCommand(), drainCommand(), undrainCommand())
	return cmd
}

func listWorkersCommand() *cobra.Command {
	var positions bool
	cmd := readCommand(manual{
		"list [PATTERN...]", "list workers and their actions",
		"Lists the workers that match the pattern, or all, and the drains in force. RUNNING counts actions; those beyond the slots of a\n" +
			"worker fetch inputs or store outputs. ACTION is the oldest one of all positions (--positions).\n" + workerPatterns,
		"forerunner workers list 'host=build-*'\nforerunner workers list --positions host=build-7",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			p, err := patternOf(args)
			if err != nil {
				return err
			}
			list, err := c.workers(ctx, &admin.ListWorkersRequest{Pattern: p, Positions: positions})
			if err != nil {
				return err
			}
			if printed, err := c.print(list); printed {
				return err
			}
			return c.printWorkers(list)
		})
	cmd.Flags().BoolVar(&positions, "positions", false, "also list the positions of each worker, which take one action at a time each")
	return cmd
}

// workers asks for all pages.
func (c *adminCall) workers(ctx context.Context, req *admin.ListWorkersRequest) (*admin.ListWorkersResponse, error) {
	all := &admin.ListWorkersResponse{}
	for {
		call, cancel := context.WithTimeout(ctx, adminTimeout)
		page, err := c.ListWorkers(call, req)
		cancel()
		if err != nil {
			return nil, err
		}
		page.Workers = append(all.Workers, page.GetWorkers()...)
		all = page
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return all, nil
		}
	}
}

func (c *adminCall) printWorkers(list *admin.ListWorkersResponse) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STATE\tRUNNING\tSLOTS\tFOR\tACTION\tCLASS\tPREFIX\tPLATFORM\tWORKER")
	for _, x := range list.GetWorkers() {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%d\t%s\t%s\t%s\n", workerState(x), x.GetActions(), x.GetSlots(), ago(x.GetSince()), shortDigest(x.GetAction()),
			x.GetSizeClass(), dash(x.GetInstanceNamePrefix()), platformText(x.GetPlatform()), names.Pairs(x.GetIdentity()))
		for _, p := range x.GetPositions() {
			fmt.Fprintf(w, "  %s\t\t\t%s\t%s\t\t\t\t  position %s\n", strings.ToLower(p.GetState().String()), ago(p.GetSince()), shortDigest(p.GetAction()),
				dash(p.GetName()))
		}
	}
	if len(list.GetWorkers()) == 0 {
		if _, err := fmt.Fprintln(c.out, "no connected worker matches"); err != nil {
			return err
		}
	} else if err := w.Flush(); err != nil {
		return err
	}
	for _, x := range list.GetWorkers() {
		if x.GetTwin() != "" {
			if _, err := fmt.Fprintf(c.out, "two processes: %s at %s; the one at %s is refused\n",
				names.Pairs(x.GetIdentity()), x.GetAddress(), x.GetTwin()); err != nil {
				return err
			}
		}
	}
	if err := c.printHindrances(list.GetWorkers()); err != nil {
		return err
	}
	for _, d := range list.GetDrains() {
		line := fmt.Sprintf("drained: %s for %s", names.Pairs(d.GetPattern().GetAttributes()), ago(d.GetSince()))
		if d.GetAuthor() != "" {
			line += " by " + d.GetAuthor()
		}
		if d.GetReason() != "" {
			line += ": " + d.GetReason()
		}
		if d.GetMatching() == 0 {
			line += " (no connected worker matches)"
		}
		if _, err := fmt.Fprintln(c.out, line); err != nil {
			return err
		}
	}
	return nil
}

// printHindrances prints the reason of each worker that is suspended or rests.
func (c *adminCall) printHindrances(list []*admin.Worker) error {
	for _, x := range list {
		why := text.Hindrance(x)
		if why == "" {
			continue
		}
		if _, err := fmt.Fprintf(c.out, "%s: %s\n", names.Pairs(x.GetIdentity()), why); err != nil {
			return err
		}
	}
	return nil
}

func workerState(w *admin.Worker) string {
	s := strings.ToLower(w.GetState().String())
	if w.GetState() == admin.Worker_DRAINING && !w.GetDrainedByPattern() {
		return s + " (leaving)"
	}
	return s
}

func drainCommand() *cobra.Command {
	var wait bool
	var reason string
	cmd := adminCommand(manual{
		"drain PATTERN...", "give workers no further actions",
		"Gives the workers that match the pattern no further actions; they finish the ones that they run. A drain also holds for\n" +
			"workers that connect later, and over restarts of scheduler and workers, until undrain.\n" + workerPatterns,
		"forerunner workers drain 'host=build-*' --reason='new kernel' --wait",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			p, err := filledPattern(args, exampleOfWorkers)
			if err != nil {
				return err
			}
			call, cancel := context.WithTimeout(ctx, adminTimeout)
			defer cancel()
			resp, err := c.Drain(call, &admin.DrainRequest{Pattern: p, Reason: reason})
			if err != nil {
				return err
			}
			if wait {
				if err := c.waitDrained(ctx, p); err != nil {
					return err
				}
			}
			if printed, err := c.print(resp); printed {
				return err
			}
			workers := resp.GetWorkers()
			if _, err = fmt.Fprintf(c.out, "%s %s drained by %s\n",
				plural.Of(workers, "worker"), plural.Choose(workers, "is", "are"), names.Pairs(p.GetAttributes())); err != nil {
				return err
			}
			if n := resp.GetWaiting(); n > 0 {
				_, err = fmt.Fprintf(c.out, "%s that only drained workers could run\n", actionsWait(n))
			}
			if w := resp.GetWarning(); w != "" && err == nil {
				_, err = fmt.Fprintln(c.out, "warning: "+w)
			}
			return err
		})
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that the list of workers shows")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until none of them runs an action")
	return cmd
}

func actionsWait(n int64) string { return plural.Of(n, "action") + plural.Choose(n, " waits", " wait") }

// waitDrained returns when no worker that p matches has an action.
func (c *adminCall) waitDrained(ctx context.Context, p *admin.Pattern) error {
	ticker := time.NewTicker(drainPoll)
	defer ticker.Stop()
	for {
		list, err := c.workers(ctx, &admin.ListWorkersRequest{Pattern: p})
		if err != nil {
			return err
		}
		busy := 0
		for _, w := range list.GetWorkers() {
			if w.GetAction() != "" {
				busy++
			}
		}
		if busy == 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func undrainCommand() *cobra.Command {
	return adminCommand(manual{
		"undrain PATTERN...", "end a drain",
		"Ends the drain that was made with the same pattern, so that its workers get actions again.",
		"forerunner workers undrain 'host=build-*'",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			p, err := requiredPattern(args, exampleOfWorkers)
			if err != nil {
				return err
			}
			return answer(ctx, c, c.Undrain, &admin.UndrainRequest{Pattern: p}, func(resp *admin.UndrainResponse) error {
				n := resp.GetWorkers()
				_, err := fmt.Fprintf(c.out, "%s %s no longer drained by %s\n", plural.Of(n, "worker"), plural.Choose(n, "is", "are"), names.Pairs(p.GetAttributes()))
				return err
			})
		})
}
