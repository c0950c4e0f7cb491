package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/proto/admin"
)

func statsCommand() *cobra.Command {
	var reduced bool
	var instance, mnemonic string
	cmd := readCommand("stats [flags] ACTION", "show how an action ran on each size class, and where it would run now",
		"Shows what the scheduler remembers of an action, given as HASH/SIZE: its outcomes on each size class,\n"+
			"what it makes of them, and on which class the action would start now and why.\n\n"+
			"With --reduced it is the key of the statistics that is given: the digest of an Action with its command\n"+
			"and platform only. Size classes are then those of all platforms.",
		func(ctx context.Context, c *adminCall, args []string) error {
			if len(args) != 1 {
				return errors.New("give one action as HASH/SIZE: worker and scheduler name it in their logs")
			}
			d, err := parseDigest(args[0])
			if err != nil {
				return err
			}
			req := &admin.GetSizesRequest{
				InstanceName: instance, DigestFunction: repb.DigestFunction_SHA256, Mnemonic: mnemonic,
				Action: &admin.GetSizesRequest_ActionDigest{ActionDigest: d.Proto()},
			}
			if reduced {
				req.Action = &admin.GetSizesRequest_ReducedActionDigest{ReducedActionDigest: d.Proto()}
			}
			return answer(ctx, c, c.GetSizes, req, c.printSizes)
		})
	f := cmd.Flags()
	f.BoolVar(&reduced, "reduced", false, "ACTION is the reduced action digest")
	f.StringVar(&instance, "instance", "", "instance `name`")
	f.StringVar(&mnemonic, "mnemonic", "", "the action's `mnemonic`, which tells what is like it while nothing is known of itself")
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
