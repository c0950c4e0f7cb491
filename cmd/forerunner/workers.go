package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/text"
)

// drainPoll is how often drain --wait looks whether it may end.
const drainPoll = time.Second

const workerPatterns = `A pattern is name=value of a worker's identity (its --id, and position), and more of them after
commas or as further arguments, which then must all hold. In values "*" stands for any text and "?" for
any one character: host=build-*`

func workersCommand() *cobra.Command {
	cmd := listWorkersCommand()
	cmd.Use, cmd.Short, cmd.Args = "workers", "list workers, drain them for maintenance", cobra.NoArgs
	cmd.AddCommand(listWorkersCommand(), drainCommand(), undrainCommand())
	return cmd
}

func listWorkersCommand() *cobra.Command {
	return readCommand("list [PATTERN...]", "list workers and what they do",
		"Lists the workers that the pattern matches, or all.\n"+workerPatterns,
		func(ctx context.Context, c *adminCall, args []string) error {
			p, err := patternOf(args)
			if err != nil {
				return err
			}
			list, err := c.workers(ctx, p)
			if err != nil {
				return err
			}
			if printed, err := c.print(list); printed {
				return err
			}
			return c.printWorkers(list)
		})
}

// workers asks for all pages.
func (c *adminCall) workers(ctx context.Context, p *admin.Pattern) (*admin.ListWorkersResponse, error) {
	all := &admin.ListWorkersResponse{}
	for req := (&admin.ListWorkersRequest{Pattern: p}); ; {
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
	fmt.Fprintln(w, "STATE\tFOR\tACTION\tCLASS\tPREFIX\tPLATFORM\tWORKER")
	for _, x := range list.GetWorkers() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", workerState(x), ago(x.GetSince()), shortDigest(x.GetAction()),
			x.GetSizeClass(), dash(x.GetInstanceNamePrefix()), platformText(x.GetPlatform()), text.Pairs(x.GetIdentity()))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, x := range list.GetWorkers() {
		if x.GetTwin() != "" {
			if _, err := fmt.Fprintf(c.out, "two processes: %s at %s; the one at %s is refused\n",
				text.Pairs(x.GetIdentity()), x.GetAddress(), x.GetTwin()); err != nil {
				return err
			}
		}
	}
	for _, d := range list.GetDrains() {
		line := fmt.Sprintf("drained: %s for %s", text.Pairs(d.GetPattern().GetAttributes()), ago(d.GetSince()))
		if d.GetAuthor() != "" {
			line += " by " + d.GetAuthor()
		}
		if d.GetReason() != "" {
			line += ": " + d.GetReason()
		}
		if _, err := fmt.Fprintln(c.out, line); err != nil {
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
	cmd := adminCommand("drain PATTERN...", "let workers finish and give them no further action",
		"Lets the workers that the pattern matches finish what they have and gives them nothing more. That\n"+
			"holds for those that connect later too, and over restarts of both sides, until it is taken back\n"+
			"with undrain.\n"+workerPatterns,
		func(ctx context.Context, c *adminCall, args []string) error {
			p, err := requiredPattern(args)
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
			if _, err = fmt.Fprintf(c.out, "%d workers are drained by %s\n", resp.GetWorkers(), text.Pairs(p.GetAttributes())); err != nil {
				return err
			}
			if n := resp.GetWaiting(); n > 0 {
				_, err = fmt.Fprintf(c.out, "%d actions wait that only drained workers could run\n", n)
			}
			if w := resp.GetWarning(); w != "" && err == nil {
				_, err = fmt.Fprintln(c.out, "warning: "+w)
			}
			return err
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who list the workers later")
	cmd.Flags().BoolVar(&wait, "wait", false, "return when none of them has an action any more")
	return cmd
}

// waitDrained returns when no worker that p matches has an action.
func (c *adminCall) waitDrained(ctx context.Context, p *admin.Pattern) error {
	ticker := time.NewTicker(drainPoll)
	defer ticker.Stop()
	for {
		list, err := c.workers(ctx, p)
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
	return adminCommand("undrain PATTERN...", "give workers actions again",
		"Takes back a drain; the pattern is the one that it was given.",
		func(ctx context.Context, c *adminCall, args []string) error {
			p, err := requiredPattern(args)
			if err != nil {
				return err
			}
			return answer(ctx, c, c.Undrain, &admin.UndrainRequest{Pattern: p}, func(resp *admin.UndrainResponse) error {
				_, err := fmt.Fprintf(c.out, "%d workers match %s\n", resp.GetWorkers(), text.Pairs(p.GetAttributes()))
				return err
			})
		})
}
