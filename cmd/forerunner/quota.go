package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/proto/admin"
)

const aboutQuotas = `A quota is what an instance name is guaranteed of a cohort of workers (min), and what it may not exceed
(max), in slots or in units of size classes. docs/SCHEDULING.md#quotas says how cohorts are made.`

func quotaCommand() *cobra.Command {
	cmd := quotaListCommand()
	cmd.Use, cmd.Short = "quota", "list, change and delete what instance names are guaranteed, and may not exceed"
	cmd.AddCommand(quotaListCommand(), quotaGetCommand(), quotaPutCommand(), quotaDeleteCommand())
	return cmd
}

func quotaListCommand() *cobra.Command {
	cmd := readCommand("list [COHORT]", "list quotas and what is used",
		"Lists the instance names that have a quota, or something that runs or waits.\n"+aboutQuotas,
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
	cmd := readCommand("get INSTANCE COHORT", "show a quota and what is used",
		"Shows the quota of an instance name, what it uses and what it has waiting.\n"+aboutQuotas,
		func(ctx context.Context, c *adminCall, args []string) error {
			req.InstanceName, req.Cohort = &args[0], args[1]
			return c.listQuotas(ctx, req)
		})
	cmd.Args = cobra.ExactArgs(2)
	cmd.Flags().BoolVar(&req.WithRuns, "runs", false, "list what it runs at that moment, too")
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

// printRuns prints what a cohort runs, if it was asked for.
func (c *adminCall) printRuns(co *admin.Cohort) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	header := "OPERATION\tACTION\tINSTANCE\tCOST\tRUNS\tWORKER\n"
	for _, q := range co.GetQuotas() {
		for _, r := range q.GetRuns() {
			fmt.Fprintf(w, header+"%s\t%s\t%s\t%d\t%s\t%s\n", r.GetOperation(), shortDigest(r.GetAction()),
				dash(q.GetInstanceName()), r.GetCost(), ago(r.GetStarted()), r.GetWorker())
			header = ""
		}
	}
	return w.Flush()
}

// warn prints what an operator should know of a cohort.
func (c *adminCall) warn(co *admin.Cohort) (err error) {
	if co.GetWarning() != "" {
		_, err = fmt.Fprintf(c.out, "warning: cohort %s: %s\n", co.GetName(), co.GetWarning())
	}
	return err
}

func quotaPutCommand() *cobra.Command {
	req := &admin.PutQuotaRequest{}
	var cmd *cobra.Command
	cmd = adminCommand("put INSTANCE COHORT", "give an instance name a quota",
		"Gives an instance name a quota of a cohort. A limit that is not given stays as it is. What runs above a lower max goes on\n"+
			"until it ends, unless it is preempted.\n"+aboutQuotas,
		func(ctx context.Context, c *adminCall, args []string) error {
			req.InstanceName, req.Cohort = args[0], args[1]
			req.KeepMin, req.KeepMax = !cmd.Flags().Changed("min-quota"), !cmd.Flags().Changed("max-quota")
			if req.KeepMin && req.KeepMax {
				return errors.New("say --min-quota, --max-quota or both; one that is left out stays as it is")
			}
			return answer(ctx, c, c.PutQuota, req, func(resp *admin.PutQuotaResponse) error {
				return c.printCohorts([]*admin.Cohort{resp.GetCohort()})
			})
		})
	cmd.Args = cobra.ExactArgs(2)
	cmd.Flags().Int64Var(&req.Min, "min-quota", 0, "`units` that are guaranteed; 0: none")
	cmd.Flags().Int64Var(&req.Max, "max-quota", 0, "`units` that are the limit; 0: none")
	cmd.Flags().BoolVar(&req.Preempt, "preempt", false, "stop what runs above the limit, to run again later")
	return cmd
}

func quotaDeleteCommand() *cobra.Command {
	cmd := adminCommand("delete INSTANCE COHORT", "take a quota away",
		"Takes the quota of an instance name away: nothing is guaranteed then, and nothing limited.\n"+aboutQuotas,
		func(ctx context.Context, c *adminCall, args []string) error {
			req := &admin.DeleteQuotaRequest{InstanceName: args[0], Cohort: args[1]}
			return answer(ctx, c, c.DeleteQuota, req, func(*admin.DeleteQuotaResponse) error { return nil })
		})
	cmd.Args = cobra.ExactArgs(2)
	return cmd
}
