package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web"
	"github.com/forerunner-build/forerunner/web/facts"
	"github.com/forerunner-build/forerunner/web/text"
)

// kindHelp has the meaning of the flag of each kind.
var kindHelp = map[string]string{
	web.BuildsKind: "builds with published events, instead of operations", "slowest": "the slowest first, 50 at most",
	"failed": "only those that failed", "retried": "only those that ran more than once",
	"out-of-memory": "only those that ran out of memory", "cached": "only those whose result was in the action cache",
}

func historyCommand() *cobra.Command {
	var limit int
	var since, until time.Duration
	chosen := map[string]*bool{}
	cmd := readCommand(manual{
		"history [TEXT | NAME=VALUE]...", "find completed operations",
		"Lists completed operations, the latest first, for as long as the scheduler keeps records of them\n" +
			"(--keep-records). TEXT is any part of a target, mnemonic, user, invocation, worker or instance name, or the\n" +
			"beginning of an action's hash. An operation without a target is found by its command line. NAME is action,\n" +
			"instance, invocation, mnemonic, operation, target, user or worker, and in values \"*\" stands for any text.\n\n" +
			"On a terminal, lines are shortened to its width, and names of operations are without \"operations/\". Into a pipe,\n" +
			"and with --json, everything is written.\n\n" +
			"With --builds it lists builds whose events Bazel published (--bes_backend), and NAME is command, host, instance,\n" +
			"invocation, target (that was to be built, or that failed) or user.",
		"forerunner history --failed --since 1h\nforerunner history --since 26h --until 24h user=ann\nforerunner history 'target=//slow/*' mnemonic=TestRunner --slowest --limit 10\n" +
			"forerunner history --builds user=ann command=test",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			kind := ""
			for _, k := range web.Kinds() {
				if flag := chosen[k.Name]; flag != nil && *flag {
					if kind != "" {
						return settings.Wrong("--%s and --%s: choose one", kind, k.Name)
					}
					kind = k.Name
				}
			}
			req, err := web.RecordsOf(kind, strings.Join(args, " "), since)
			if err == nil {
				err = endBefore(req, since, until)
			}
			if err != nil {
				return settings.Wrong("%w", err)
			}
			list, err := c.records(ctx, req, limit)
			if err != nil {
				return err
			}
			for _, r := range list.GetRecords() {
				facts.DropUnknown(r.GetMetadata()) // they cannot be JSON
			}
			if printed, err := c.print(list); printed {
				return err
			}
			if kind == web.BuildsKind {
				return c.printBuilds(list.GetRecords())
			}
			return c.printRecords(list.GetRecords())
		})
	for _, k := range web.Kinds()[1:] {
		chosen[k.Name] = cmd.Flags().Bool(k.Name, false, kindHelp[k.Name])
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum `number` to list")
	settings.Bound(cmd.Flags(), "limit", &limit, settings.Bounds{Min: "1"})
	cmd.Flags().DurationVar(&since, "since", 0, "`time` within which they ended, such as 2h; 0 is any")
	settings.Bound(cmd.Flags(), "since", &since, settings.Bounds{Min: "0"})
	cmd.Flags().DurationVar(&until, "until", 0, "`time` before which they ended, such as 1h ago; 0 is now")
	settings.Bound(cmd.Flags(), "until", &until, settings.Bounds{Min: "0"})
	return cmd
}

// endBefore restricts a request to operations that ended at least that long ago.
func endBefore(req *admin.ListRecordsRequest, since, until time.Duration) error {
	if until == 0 {
		return nil
	}
	if since > 0 && since <= until {
		return fmt.Errorf("--since %s is not longer ago than --until %s", since, until)
	}
	req.Before = timestamppb.New(time.Now().Add(-until))
	return nil
}

// records asks for pages until it has limit records.
func (c *adminCall) records(ctx context.Context, req *admin.ListRecordsRequest, limit int) (*admin.ListRecordsResponse, error) {
	all := &admin.ListRecordsResponse{}
	for len(all.Records) < limit {
		req.PageSize = int32(min(limit-len(all.Records), 1000))
		call, cancel := context.WithTimeout(ctx, adminTimeout)
		page, err := c.ListRecords(call, req)
		cancel()
		if err != nil {
			return nil, err
		}
		all.Records = append(all.Records, page.GetRecords()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	return all, nil
}

func (c *adminCall) printRecords(list []*historypb.Record) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(c.out, "no completed operation matches")
		return err
	}
	columns := []column{
		{title: "OPERATION"},
		{title: "ENDED", rank: 5, least: 10, isEnd: true},
		{title: "RAN", rank: 4},
		{title: "ATTEMPTS", rank: 7, least: 4},
		{title: "RESULT", least: 16, enough: 24},
		{title: "MNEMONIC", rank: 6, least: 8, enough: 16},
		{title: "TARGET", least: 24, enough: 48, isEnd: true},
		{title: "INVOCATION", rank: 9, least: 8, enough: 36},
		{title: "USER", rank: 10, least: 8, enough: 16},
		{title: "WORKER", rank: 8, least: 8, enough: 24, isEnd: true},
	}
	var rows [][]string
	width := c.columns()
	for _, r := range list {
		name := r.GetOperation()
		if width > 0 { // its beginning is the same for all, and may be omitted
			name = text.OperationID(name)
		}
		ran := "-"
		if r.GetStarted() != nil {
			ran = r.GetEnded().AsTime().Sub(r.GetStarted().AsTime()).Round(time.Millisecond).String()
		}
		rows = append(rows, []string{
			name, r.GetEnded().AsTime().UTC().Format(time.RFC3339), ran, strconv.Itoa(int(r.GetAttempts())), facts.Outcome(r),
			dash(r.GetMnemonic()), facts.Name(r), dash(r.GetInvocation()), dash(r.GetUser()), dash(text.Machine(r.GetWorker())),
		})
	}
	return printColumns(c.out, columns, rows, width)
}

func (c *adminCall) printBuilds(list []*historypb.Record) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(c.out, "no build with published events matches")
		return err
	}
	columns := []column{
		{title: "INVOCATION", least: 36},
		{title: "BEGAN", rank: 2, least: 10, isEnd: true},
		{title: "TOOK", rank: 1},
		{title: "RESULT", least: 16, enough: 24},
		{title: "BUILD", least: 24, enough: 48},
		{title: "TARGETS", rank: 4, least: 8},
		{title: "TESTS", rank: 3, least: 8},
		{title: "USER", rank: 5, least: 8, enough: 16},
		{title: "HOST", rank: 6, least: 8, enough: 16},
	}
	var rows [][]string
	for _, r := range list {
		b := r.GetBuild()
		began, took := "-", "-"
		if b.GetStarted() != nil {
			began = b.GetStarted().AsTime().UTC().Format(time.RFC3339)
			if b.GetFinished() != nil {
				took = b.GetFinished().AsTime().Sub(b.GetStarted().AsTime()).Round(time.Millisecond).String()
			}
		}
		targets, tests := facts.BuildCounts(b)
		rows = append(rows, []string{
			r.GetInvocation(), began, took, facts.BuildOutcome(r.GetOutcome(), b, r.GetEnded().AsTime()),
			facts.Build(b), dash(targets), dash(tests), dash(facts.BuildUser(r.GetUser(), b)), dash(b.GetHost()),
		})
	}
	return printColumns(c.out, columns, rows, c.columns())
}
