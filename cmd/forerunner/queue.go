package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web/text"
)

const operationPatterns = `A pattern is one or more of name=value, separated by commas or as arguments; all must match. In values,
"*" matches any text and "?" any one character. The names are operation,
action, client, correlated, instance, invocation, mnemonic, stage (queued or executing), target, user,
worker, and platform.NAME for each property.`

func queueCommand() *cobra.Command {
	cmd := queueListCommand()
	cmd.Use, cmd.Short = "queue", "list queues and operations, and kill operations"
	cmd.AddCommand(queueListCommand(), operationsCommand(), killCommand())
	return cmd
}

func queueListCommand() *cobra.Command {
	cmd := readCommand(manual{
		"list", "list queues, and why actions wait",
		"Lists each platform and size class with its workers, its waiting actions and the reason why they wait, and below it the\n" +
			"same by invocation keys.",
		"forerunner queue list --watch",
	},
		func(ctx context.Context, c *adminCall, _ []string) error {
			return answer(ctx, c, c.ListQueues, &admin.ListQueuesRequest{}, c.printQueues)
		})
	cmd.Args = cobra.NoArgs
	return cmd
}

func (c *adminCall) printQueues(list *admin.ListQueuesResponse) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "QUEUE\tCLASS\tWORKERS\tDRAINING\tSLOTS\tFREE\tRUNNING\tQUEUED\tOLDEST")
	var reasons []string
	for _, q := range list.GetQueues() {
		name := platformText(q.GetPlatform())
		if prefix := q.GetInstanceNamePrefix(); prefix != "" {
			name = prefix + " " + name
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", name, q.GetSizeClass(), q.GetWorkers(), q.GetDraining(),
			q.GetSlots(), q.GetSlotsFree(), q.GetExecuting(), q.GetQueued(), ago(q.GetHeadQueued()))
		printBranches(w, q.GetRoot(), 1)
		if q.GetQueued() > 0 {
			head := "nothing may start"
			if q.GetHeadAction() != "" {
				head = shortDigest(q.GetHeadAction()) + " waits"
			}
			reasons = append(reasons, fmt.Sprintf("%s, class %d: %s: %s", name, q.GetSizeClass(), head, q.GetHeadReason()))
			reasons = append(reasons, heldBack(name, q)...)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if n := list.GetUnmatched(); n > 0 {
		reasons = append(reasons, fmt.Sprintf("no worker can serve %s: %s", plural.Of(n, "action"), list.GetUnmatchedReason()))
	}
	for _, r := range reasons {
		if _, err := fmt.Fprintln(c.out, r); err != nil {
			return err
		}
	}
	return nil
}

// heldBack lists the branches of a queue that may start nothing, with reasons.
func heldBack(name string, q *admin.Queue) (reasons []string) {
	for _, b := range q.GetRoot().GetChildren() {
		if b.GetWhy() != "" {
			reasons = append(reasons, fmt.Sprintf("%s, class %d: %q is %s", name, q.GetSizeClass(), b.GetKey(), b.GetWhy()))
		}
	}
	return reasons
}

// printBranches prints everything below b, each level further to the right.
func printBranches(w io.Writer, b *admin.Branch, depth int) {
	indent := strings.Repeat("  ", depth)
	for _, child := range b.GetChildren() {
		fmt.Fprintf(w, "%s%s\t\t\t\t\t\t%d\t%d\t\n", indent, dash(child.GetKey()), child.GetRunning(), child.GetQueued())
		printBranches(w, child, depth+1)
	}
	if n := b.GetOmitted(); n > 0 {
		fmt.Fprintf(w, "%sand %d more\t\t\t\t\t\t\t\t\n", indent, n)
	}
}

func operationsCommand() *cobra.Command {
	var limit int
	cmd := readCommand(manual{
		"operations [PATTERN...]", "list queued and running operations",
		"Lists the operations that match the pattern, or all.\n" + operationPatterns,
		"forerunner queue operations 'target=//slow/*' stage=queued",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			p, err := patternOf(args)
			if err != nil {
				return err
			}
			list, err := c.operations(ctx, p, limit)
			if err != nil {
				return err
			}
			if printed, err := c.print(list); printed {
				return err
			}
			return c.printOperations(list)
		})
	cmd.Flags().IntVar(&limit, "limit", 1000, "maximum `number` of operations to list")
	settings.Bound(cmd.Flags(), "limit", &limit, settings.Bounds{Min: "1"})
	return cmd
}

// operations asks for pages until it has limit operations.
func (c *adminCall) operations(ctx context.Context, p *admin.Pattern, limit int) (*admin.ListOperationsResponse, error) {
	all := &admin.ListOperationsResponse{}
	for req := (&admin.ListOperationsRequest{Pattern: p}); len(all.Operations) < limit; {
		req.PageSize = int32(min(limit-len(all.Operations), 1000))
		call, cancel := context.WithTimeout(ctx, adminTimeout)
		page, err := c.ListOperations(call, req)
		cancel()
		if err != nil {
			return nil, err
		}
		all.Operations = append(all.Operations, page.GetOperations()...)
		all.NextPageToken = page.GetNextPageToken()
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	return all, nil
}

func (c *adminCall) printOperations(list *admin.ListOperationsResponse) error {
	if len(list.GetOperations()) == 0 {
		_, err := fmt.Fprintln(c.out, "no queued or running operation matches")
		return err
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "OPERATION\tACTION\tQUEUED\tRUNS\tATTEMPTS\tMNEMONIC\tTARGET\tINVOCATION\tCLIENT\tWORKER")
	for _, op := range list.GetOperations() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", op.GetName(), shortDigest(op.GetAction()),
			ago(op.GetQueued()), ago(op.GetStarted()), op.GetAttempts(), dash(op.GetMnemonic()), dash(op.GetTarget()),
			dash(op.GetInvocation()), dash(op.GetClient()), workerOf(op))
	}
	if list.GetNextPageToken() != "" {
		fmt.Fprintln(w, "and more: see --limit")
	}
	return w.Flush()
}

// workerOf returns the worker of an operation, and whether the operation waits for its return.
func workerOf(op *admin.Operation) string {
	if op.GetWorkerAway() {
		return text.Machine(op.GetWorker()) + " (waits for it to come back)"
	}
	return dash(text.Machine(op.GetWorker()))
}

func killCommand() *cobra.Command {
	var reason string
	cmd := adminCommand(manual{
		"kill OPERATION | PATTERN...", "end operations with an error",
		"Ends the operations that match the pattern. Their clients get the reason, and do not retry. A command that runs for\n" +
			"these operations alone is stopped.\n" + operationPatterns,
		"forerunner queue kill user=ci 'target=//slow/*' --reason='see incident 42'",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			if len(args) == 1 && strings.HasPrefix(args[0], names.OperationPrefix) {
				args = []string{"operation=" + args[0]}
			}
			p, err := filledPattern(args, exampleOfOperations)
			if err != nil {
				return err
			}
			req := &admin.KillOperationsRequest{Pattern: p, Reason: reason}
			return answer(ctx, c, c.KillOperations, req, func(resp *admin.KillOperationsResponse) error {
				n := resp.GetKilled()
				if n == 0 {
					_, err := fmt.Fprintln(c.out, "no operation matches; none was killed")
					return err
				}
				_, err := fmt.Fprintf(c.out, "%s %s killed\n", plural.Of(n, "operation"), plural.Choose(n, "was", "were"))
				return err
			})
		})
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that clients get")
	return cmd
}
