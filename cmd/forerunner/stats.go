package main

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/settings"
)

func statsCommand() *cobra.Command {
	var reduced bool
	var instance, mnemonic, configuration string
	cmd := readCommand(manual{
		"stats [flags] ACTION", "show how an action ran on each size class, and where it would run now",
		"Shows the statistics of an action: its outcomes on each size class, the scheduler's estimates, and the\n" +
			"class on which the action would start now, with the reason.\n\n" +
			actionNames + "\n\n" +
			"With --reduced, ACTION is the reduced action digest as HASH/SIZE, the key of the statistics: the digest of an Action\n" +
			"that has only its command and platform. The size classes are then those of all platforms.",
		"forerunner stats 8a14ba2ca9b0c0e1d1b0f8bd2b0e5e0b3f5a8f7c4d9f4b3e2a1c0d9e8f7a6b5c/142\n" +
			"forerunner stats 8a14ba2ca9b0",
	},
		func(ctx context.Context, c *adminCall, args []string) error {
			if len(args) != 1 {
				return settings.Wrong(nameAction)
			}
			req := &admin.GetSizesRequest{
				InstanceName: instance, DigestFunction: repb.DigestFunction_SHA256, Mnemonic: mnemonic,
				Configuration: configuration,
			}
			if reduced {
				d, err := parseDigest(args[0])
				if err != nil {
					return err
				}
				req.Action = &admin.GetSizesRequest_ReducedActionDigest{ReducedActionDigest: d.Proto()}
				return answer(ctx, c, c.GetSizes, req, c.printSizes)
			}
			d, record, err := actionOf(ctx, admin.NewSchedulerClient(c.conn), args[0])
			if err != nil {
				return err
			}
			req.Action = &admin.GetSizesRequest_ActionDigest{ActionDigest: d.Proto()}
			req.InstanceName = cmp.Or(instance, record.GetInstanceName())
			return answer(ctx, c, c.GetSizes, req, c.printSizes)
		})
	f := cmd.Flags()
	f.BoolVar(&reduced, "reduced", false, "ACTION is the reduced action digest")
	f.StringVar(&instance, "instance", "", "instance `name` (default that of the run, if its record was found)")
	f.StringVar(&mnemonic, "mnemonic", "", "`mnemonic` of the action, which finds similar actions if this one never ran")
	f.StringVar(&configuration, "configuration", "", "`configuration_id` of the action, likewise")
	return cmd
}

func (c *adminCall) printSizes(resp *admin.GetSizesResponse) error {
	d := resp.GetReducedActionDigest()
	fmt.Fprintf(c.out, "reduced action %s/%d\n", d.GetHash(), d.GetSizeBytes())
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLASS\tSUCCEEDED\tTIMED OUT\tFAILED\tMEDIAN\tEXPECTED\tACCEPTABLE\tTIMEOUT\tWAIT\tPROBABILITY\tSCORE\tRULED OUT")
	for _, s := range resp.GetSizes() {
		probability, score := "-", "-"
		if s.GetRuledOut() == "" {
			probability = fmt.Sprintf("%.2f", s.GetProbability())
		}
		if s.GetScore() > 0 {
			score = fmt.Sprintf("%.2f", s.GetScore())
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.GetSizeClass(),
			s.GetSucceeded(), s.GetTimedOut(), s.GetFailed(), brief(s.GetMedian()), brief(s.GetExpected()),
			brief(s.GetAcceptable()), brief(s.GetTimeout()), brief(s.GetWait()), probability, score, dash(s.GetRuledOut()))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if at := resp.GetLastFailure(); at != nil {
		fmt.Fprintf(c.out, "last failure on the largest class: %s ago\n", ago(at))
	}
	text := "no size class: " + resp.GetReason()
	if resp.GetTimeout() != nil {
		text = fmt.Sprintf("size class %d, for at most %s: %s", resp.GetSizeClass(), brief(resp.GetTimeout()), resp.GetReason())
	}
	_, err := fmt.Fprintln(c.out, text)
	return err
}

// brief is a duration to about three digits.
func brief(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	unit := cmp.Or(d.AsDuration().Truncate(time.Second)/100, time.Millisecond)
	return d.AsDuration().Round(unit).String()
}
