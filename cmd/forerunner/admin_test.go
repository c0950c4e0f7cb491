package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/proto/admin"
)

// A pagedWorkers has two workers, one on each page, and one that was lost.
type pagedWorkers struct{ admin.SchedulerClient }

func (pagedWorkers) ListWorkers(
	_ context.Context, req *admin.ListWorkersRequest, _ ...grpc.CallOption,
) (*admin.ListWorkersResponse, error) {
	worker := func(host string) *admin.Worker { return &admin.Worker{Identity: map[string]string{"host": host}} }
	resp := &admin.ListWorkersResponse{
		Lost:   []*admin.LostWorker{{Identity: map[string]string{"host": "gone"}}},
		Drains: []*admin.ActiveDrain{{Pattern: &admin.Pattern{Attributes: map[string]string{"host": "old"}}}},
	}
	if req.GetPageToken() == "" {
		resp.Workers, resp.NextPageToken = []*admin.Worker{worker("a")}, "more"
	} else {
		resp.Workers = []*admin.Worker{worker("b")}
	}
	return resp, nil
}

func TestAllWorkersAreListed(t *testing.T) {
	list, err := (&adminCall{SchedulerClient: pagedWorkers{}}).workers(t.Context(), &admin.ListWorkersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.GetWorkers()) != 2 || len(list.GetLost()) != 1 || len(list.GetDrains()) != 1 || list.GetNextPageToken() != "" {
		t.Errorf("listed: %v", list)
	}
}

// TestDrainsAreListed: a drain that matches nothing, as after a typing error, is seen as such.
func TestDrainsAreListed(t *testing.T) {
	var out strings.Builder
	drain := func(host string, matching int32) *admin.ActiveDrain {
		return &admin.ActiveDrain{
			Pattern: &admin.Pattern{Attributes: map[string]string{"host": host}}, Author: "ann", Reason: "disks", Matching: matching,
			Since: timestamppb.New(time.Now().Add(-time.Hour)),
		}
	}
	err := (&adminCall{out: &out}).printWorkers(&admin.ListWorkersResponse{Drains: []*admin.ActiveDrain{drain("a", 1), drain("old", 0)}})
	const want = "drained: host=a for 1h0m0s by ann: disks\ndrained: host=old for 1h0m0s by ann: disks (no connected worker matches)\n"
	if err != nil || !strings.HasSuffix(out.String(), want) {
		t.Errorf("error %v, printed\n%s", err, out.String())
	}
}

// TestQueueCountsWorkersAndSlots has workers that take nothing for now only, which are not about to
// leave.
func TestQueueCountsWorkersAndSlots(t *testing.T) {
	var out strings.Builder
	err := (&adminCall{out: &out}).printQueues(&admin.ListQueuesResponse{Queues: []*admin.Queue{
		{SizeClass: 1, Workers: 8, Idle: 1, Busy: 4, Executing: 9, Draining: 1, Resting: 2, Slots: 32, SlotsBusy: 8, SlotsFree: 20},
	}})
	want := `QUEUE  CLASS  WORKERS  DRAINING  SLOTS  FREE  RUNNING  QUEUED  OLDEST
-      1      8        1         32     20    9        0       -
`
	if err != nil || out.String() != want {
		t.Errorf("error %v, printed\n%s", err, out.String())
	}
}

func TestWorkerStates(t *testing.T) {
	for want, w := range map[string]*admin.Worker{
		"executing":          {State: admin.Worker_EXECUTING},
		"draining (leaving)": {State: admin.Worker_DRAINING},
		"draining":           {State: admin.Worker_DRAINING, DrainedByPattern: true},
		"drained":            {State: admin.Worker_DRAINED, DrainedByPattern: true},
		"resting":            {State: admin.Worker_RESTING},
		"away":               {State: admin.Worker_AWAY},
	} {
		if got := workerState(w); got != want {
			t.Errorf("%v is shown as %s, want %s", w, got, want)
		}
	}
}

// TestWorkersAreMachines prints a line for each worker, and its positions only if they are asked
// for.
func TestWorkersAreMachines(t *testing.T) {
	list := &admin.ListWorkersResponse{Workers: []*admin.Worker{{
		Identity: map[string]string{"host": "a"}, State: admin.Worker_EXECUTING, Actions: 3, Slots: 2, Action: "abababababababab/7", SizeClass: 1,
	}}}
	want := `STATE      RUNNING  SLOTS  FOR  ACTION        CLASS  PREFIX  PLATFORM  WORKER
executing  3        2      -    abababababab  1      -       -         host=a
`
	var out strings.Builder
	if err := (&adminCall{out: &out}).printWorkers(list); err != nil || out.String() != want {
		t.Errorf("error %v, printed\n%s", err, out.String())
	}
	list.Workers[0].Positions = []*admin.Position{{Name: "0", State: admin.Worker_EXECUTING, Action: "abababababababab/7"}, {Name: "1", State: admin.Worker_RESTING}}
	out.Reset()
	if err := (&adminCall{out: &out}).printWorkers(list); err != nil || strings.Count(out.String(), "\n") != 4 ||
		!strings.Contains(out.String(), "  resting ") || !strings.Contains(out.String(), "position 1\n") {
		t.Errorf("error %v, printed\n%s", err, out.String())
	}
}

// TestWhatUsersMistype: what a scheduler refuses of what was typed is a usage error, and so is what
// is refused here.
func TestWhatUsersMistype(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	_, noHash := parseDigest("abc/12")
	_, noSize := parseDigest(hash)
	_, noPattern := requiredPattern([]string{"host"}, exampleOfWorkers)
	for _, test := range []struct {
		err  error
		code int
		says string
	}{
		{explained(status.Error(codes.InvalidArgument, "no operation has \"traget\""), "x"), 2, `no operation has "traget"`},
		{explained(status.Error(codes.NotFound, "no such operation"), "x"), 1, "no such operation"},
		{explained(status.Error(codes.Unavailable, "away"), "x"), 1, "no scheduler answers at x: away"},
		{noHash, 2, `action "abc/12"`},
		{noSize, 2, "HASH/SIZE"},
		{noPattern, 2, "name=value"},
	} {
		if test.err == nil || flags.ExitCode(test.err) != test.code || !strings.Contains(test.err.Error(), test.says) {
			t.Errorf("%v: exit code %d, want %d and %q", test.err, flags.ExitCode(test.err), test.code, test.says)
		}
	}
}

// TestNoPattern: each verb that needs a pattern names one of its own kind.
func TestNoPattern(t *testing.T) {
	for verb, want := range map[string]string{"queue kill": "target=", "workers drain": "host=", "workers undrain": "host="} {
		cmd := command()
		cmd.SetArgs(append(strings.Fields(verb), "--remote=127.0.0.1:1"))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "give a pattern, such as "+want) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// TestEndBefore: --until is longer ago than now, and not as long ago as --since.
func TestEndBefore(t *testing.T) {
	for _, c := range []struct {
		since, until time.Duration
		wrong        bool
	}{
		{0, 0, false}, {time.Hour, 0, false}, {0, time.Hour, false}, {2 * time.Hour, time.Hour, false}, {time.Hour, time.Hour, true}, {time.Hour, 2 * time.Hour, true},
	} {
		req := &admin.ListRecordsRequest{}
		before := time.Now().Add(-c.until)
		err := endBefore(req, c.since, c.until)
		if (err != nil) != c.wrong || (req.GetBefore() != nil) != (err == nil && c.until > 0) {
			t.Errorf("%+v: %v, %v", c, req, err)
		}
		if req.GetBefore() != nil && (req.GetBefore().AsTime().Before(before) || req.GetBefore().AsTime().After(time.Now().Add(-c.until))) {
			t.Errorf("%+v: before %v", c, req.GetBefore().AsTime())
		}
	}
}

// TestPatternsWithoutValue: a variable of the shell that is not set does not kill or drain all
// others.
func TestPatternsWithoutValue(t *testing.T) {
	for pattern, want := range map[string]string{
		"target=": "target= has no value; target=* matches any", "host=a,name=": "name= has no value; name=* matches any",
		"instance=": "", "host=*": "", "instance=,target=//x": "",
	} {
		_, err := filledPattern(strings.Split(pattern, ","), exampleOfWorkers)
		if got := flags.ExitCode(err); want != "" && (err == nil || err.Error() != want || got != 2) || want == "" && err != nil {
			t.Errorf("%s: %v, exit code %d, want %q", pattern, err, got, want)
		}
	}
}

// TestNothingIsFound says so: an empty table looks like a fault.
func TestNothingIsFound(t *testing.T) {
	var out strings.Builder
	c := &adminCall{out: &out}
	if err := errors.Join(c.printRecords(nil), c.printBuilds(nil), c.printWorkers(nil), c.printOperations(nil)); err != nil {
		t.Fatal(err)
	}
	if want := "no completed operation matches\nno build with published events matches\n" +
		"no connected worker matches\nno queued or running operation matches\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}
