package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web/text"
)

const aboutQuotas = `A quota guarantees an instance name part of a cohort of workers (min) and limits it (max), in slots or in units
of size classes. docs/SCHEDULING.md#quotas says how to configure cohorts.`

func quotaCommand() *cobra.Command {
	cmd := quotaListCommand()
	cmd.Use, cmd.Short = "quota", "list, change and delete quotas"
	cmd.AddCommand(quotaListCommand(), quotaGetCommand(), quotaPutCommand(), quotaDeleteCommand())
	return cmd
}

func quotaListCommand() *cobra.Command {
	cmd := readCommand(manual{
		"list [COHORT]", "list quotas and usage",
		"Lists the instance names that have a quota, or running or waiting actions.\n" + aboutQuotas,
		"forerunner quota list linux",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			req := &admin.ListQuotasRequest{}
			if len(args) > 0 {
				req.Cohort = args[0]
			}
			return c.listQuotas(ctx, req)
		})
	cmd.Args = cobra.MaximumNArgs(1)
	return cmd
}

func quotaGetCommand() *cobra.Command {
	req := &admin.ListQuotasRequest{}
	cmd := readCommand(manual{
		"get INSTANCE COHORT", "show a quota and its usage",
		"Shows the quota of an instance name, its usage and how many of its actions wait.\n" + aboutQuotas,
		"forerunner quota get acme linux --runs",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			req.InstanceName, req.Cohort = &args[0], args[1]
			return c.listQuotas(ctx, req)
		})
	cmd.Args = flags.Arguments
	cmd.Flags().BoolVar(&req.WithRuns, "runs", false, "also list the running actions")
	return cmd
}

func (c *adminCall) listQuotas(ctx context.Context, req *admin.ListQuotasRequest) error {
	return answer(ctx, c, c.ListQuotas, req, func(list *admin.ListQuotasResponse) error {
		if len(list.GetCohorts()) == 0 {
			_, err := fmt.Fprintln(c.out, "the scheduler's --config names no cohorts; docs/SCHEDULING.md#quotas says how")
			return err
		}
		return c.printCohorts(list.GetCohorts())
	})
}

func (c *adminCall) printCohorts(cohorts []*admin.Cohort) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COHORT\tINSTANCE\tMIN\tMAX\tUSED\tWAITING")
	for _, co := range cohorts {
		fmt.Fprintf(w, "%s (%s)\tall\t%d\t%d\t%d\t\n", co.GetName(), co.GetUnit(), co.GetMinimums(), co.GetCapacity(), co.GetUsed())
		for _, q := range co.GetQuotas() {
			limit := "-"
			if q.GetMax() > 0 {
				limit = strconv.FormatInt(q.GetMax(), 10)
			}
			fmt.Fprintf(w, "\t%s\t%d\t%s\t%d\t%d\n", dash(q.GetInstanceName()), q.GetMin(), limit, q.GetUsed(), q.GetWaiting())
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, co := range cohorts {
		if err := errors.Join(c.printRuns(co), c.warn(co)); err != nil {
			return err
		}
	}
	return nil
}

// printRuns prints the running operations of a cohort, if requested.
func (c *adminCall) printRuns(co *admin.Cohort) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	header := "OPERATION\tACTION\tINSTANCE\tCOST\tRUNS\tWORKER\n"
	for _, q := range co.GetQuotas() {
		for _, r := range q.GetRuns() {
			fmt.Fprintf(w, header+"%s\t%s\t%s\t%d\t%s\t%s\n", r.GetOperation(), shortDigest(r.GetAction()),
				dash(q.GetInstanceName()), r.GetCost(), ago(r.GetStarted()), text.Machine(r.GetWorker()))
			header = ""
		}
	}
	return w.Flush()
}

// warn prints warnings about a cohort.
func (c *adminCall) warn(co *admin.Cohort) (err error) {
	if co.GetWarning() != "" {
		_, err = fmt.Fprintf(c.out, "warning: cohort %s: %s\n", co.GetName(), co.GetWarning())
	}
	return err
}

func quotaPutCommand() *cobra.Command {
	req := &admin.PutQuotaRequest{}
	var cmd *cobra.Command
	cmd = adminCommand(manual{
		"put INSTANCE COHORT", "set the quota of an instance name",
		"Sets the quota of an instance name in a cohort. If you omit a limit, it keeps its value. Actions that run above a\n" +
			"lower max go on until they end, unless you give --preempt.\n" + aboutQuotas,
		"forerunner quota put acme linux --min-quota=8 --max-quota=32",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			req.InstanceName, req.Cohort = args[0], args[1]
			req.KeepMin, req.KeepMax = !cmd.Flags().Changed("min-quota"), !cmd.Flags().Changed("max-quota")
			if req.KeepMin && req.KeepMax {
				return settings.Wrong("give --min-quota, --max-quota or both; one that is left out keeps its value")
			}
			return answer(ctx, c, c.PutQuota, req, func(resp *admin.PutQuotaResponse) error {
				return c.printCohorts([]*admin.Cohort{resp.GetCohort()})
			})
		})
	cmd.Args = flags.Arguments
	cmd.Flags().Int64Var(&req.Min, "min-quota", 0, "guaranteed `units`; 0: none")
	cmd.Flags().Int64Var(&req.Max, "max-quota", 0, "maximum `units`; 0: no limit")
	settings.Bound(cmd.Flags(), "min-quota", &req.Min, settings.Bounds{Min: "0"})
	settings.Bound(cmd.Flags(), "max-quota", &req.Max, settings.Bounds{Min: "0"})
	cmd.Flags().BoolVar(&req.Preempt, "preempt", false, "stop actions that run above the limit, and queue them again")
	return cmd
}

func quotaDeleteCommand() *cobra.Command {
	cmd := adminCommand(manual{
		"delete INSTANCE COHORT", "delete a quota",
		"Deletes the quota of an instance name, which then has neither a guarantee nor a limit.\n" + aboutQuotas,
		"forerunner quota delete acme linux",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			req := &admin.DeleteQuotaRequest{InstanceName: args[0], Cohort: args[1]}
			return answer(ctx, c, c.DeleteQuota, req, func(*admin.DeleteQuotaResponse) error { return nil })
		})
	cmd.Args = flags.Arguments
	return cmd
}
