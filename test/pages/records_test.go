//go:build pages

package pages

import (
	"fmt"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

const (
	// largeActions and largePositions are of a build that ended before the farm was started.
	largeActions, largePositions = 20_000, 64
	// evil is a hostile name of a target.
	evil = `//evil:<img src=x onerror=alert(1)>`
)

// remember has a farm know of a build of 20,000 actions, "large", and of one that has each outcome,
// "mixed".
func remember(t *testing.T, folder string) {
	t.Helper()
	store, err := history.Open(folder, history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now().Add(-2 * time.Hour).Truncate(time.Second)
	free := make([]time.Time, largePositions)
	for i := range free {
		free[i] = start
	}
	for i := range largeActions {
		position := (i * 7) % largePositions
		took := time.Duration(100+(i*7919)%1900) * time.Millisecond
		r := record("large", i, free[position], took)
		r.Worker = fmt.Sprintf(`{"host":"build-%d","position":"%d"}`, position/16, position%16)
		free[position] = r.Ended.AsTime().Add(20 * time.Millisecond)
		switch {
		case i%1000 == 3:
			r.Outcome, r.ExitCode = historypb.Outcome_FAILED, 1
		case i%5 == 0:
			r.Outcome, r.Worker, r.Started, r.Attempts = historypb.Outcome_CACHED, "", nil, 0
		}
		store.Add(r)
	}
	for i, change := range []func(*historypb.Record){
		func(r *historypb.Record) {
			r.Outcome, r.ExitCode, r.Stderr = historypb.Outcome_FAILED, 139, &historypb.Stream{Raw: []byte("\x1b[1;31merror:\x1b[0m no such thing\n" +
				"\x1b[32mgreen\x1b[0m \x1b[33myellow\x1b[0m \x1b[34mblue\x1b[0m \x1b[36mcyan\x1b[0m\n")}
		},
		func(r *historypb.Record) { r.Attempts = 3 },
		func(r *historypb.Record) { r.Outcome, r.ExitCode = historypb.Outcome_OUT_OF_MEMORY, 137 },
		func(r *historypb.Record) {
			r.Outcome, r.Code, r.Error = historypb.Outcome_TIMED_OUT, 4, "the command took longer than 10s"
		},
		func(r *historypb.Record) { r.Outcome, r.Code = historypb.Outcome_CANCELLED, 1 },
		func(r *historypb.Record) {
			r.Outcome, r.Code, r.Error = historypb.Outcome_ERROR, 14, "no worker has the platform property pool=gpu"
		},
		func(r *historypb.Record) {
			r.Outcome, r.Worker, r.Started, r.Attempts = historypb.Outcome_CACHED, "", nil, 0
		},
		func(r *historypb.Record) {
			r.Target, r.Stdout = evil, &historypb.Stream{Raw: []byte("</pre><script>alert(1)</script>")}
		},
	} {
		r := record("mixed", i, start.Add(time.Hour+time.Duration(i)*3*time.Second), 2500*time.Millisecond)
		change(r)
		store.Add(r)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// record is of an operation that ended well.
func record(invocation string, i int, started time.Time, took time.Duration) *historypb.Record {
	at := func(share float64) *timestamppb.Timestamp {
		return timestamppb.New(started.Add(time.Duration(share * float64(took))))
	}
	resources, err := anypb.New(&actionstats.Prefetch{Profile: "exact", Foreseen: &actionstats.Files{Files: 300, Bytes: 5 << 20}})
	if err != nil {
		panic(err)
	}
	return &historypb.Record{
		Operation: fmt.Sprintf("operations/%s-0000-4000-8000-%012d", map[string]string{"large": "1a49e000", "mixed": "3e0d0000"}[invocation], i),
		Action:    digest.Of(digest.SHA256, fmt.Append(nil, invocation, i)).String(), DigestFunction: "sha256", InstanceName: "main",
		Target: fmt.Sprintf("//%s/library/of/things:target_%d", invocation, i), Mnemonic: []string{"CppCompile", "GoLink", "TestRunner"}[i%3],
		Invocation: invocation, User: "ann", Client: "10.1.2.3", Outcome: historypb.Outcome_SUCCEEDED, Attempts: 1,
		Worker: `{"host":"build-1","position":"0"}`, SizeClass: 1,
		Queued: timestamppb.New(started.Add(-300 * time.Millisecond)), Started: at(0), Ended: at(1),
		Arguments: []string{"/usr/bin/gcc", "-c", fmt.Sprintf("a %d.c", i)},
		Metadata: &repb.ExecutedActionMetadata{
			Worker: "build-1", QueuedTimestamp: timestamppb.New(started.Add(-300 * time.Millisecond)), WorkerStartTimestamp: at(0),
			InputFetchStartTimestamp: at(0.02), InputFetchCompletedTimestamp: at(0.2), ExecutionStartTimestamp: at(0.2), ExecutionCompletedTimestamp: at(0.9),
			OutputUploadStartTimestamp: at(0.9), OutputUploadCompletedTimestamp: at(0.97), WorkerCompletedTimestamp: at(1),
			VirtualExecutionDuration: durationpb.New(took / 2), AuxiliaryMetadata: []*anypb.Any{resources},
		},
		Outputs: []*historypb.Output{{Path: fmt.Sprintf("bazel-out/bin/a %d.o", i), Digest: digest.Of(digest.SHA256, nil).String()}}, AllOutputs: 1,
	}
}
