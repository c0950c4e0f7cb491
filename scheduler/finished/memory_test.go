package finished

import (
	"fmt"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// usual returns a Recorder, and an operation as most are: a compilation that succeeded.
func usual(t testing.TB) (*Recorder, *event.Status) {
	t.Helper()
	store, err := history.Open(t.TempDir(), history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	command := &repb.Command{Arguments: []string{"gcc"}}
	for i := range 30 {
		command.Arguments = append(command.Arguments, fmt.Sprintf("-Ipackage_%d/include", i))
		command.EnvironmentVariables = append(command.EnvironmentVariables, &repb.Command_EnvironmentVariable{Name: fmt.Sprint(i), Value: "x"})
	}
	encoded, err := proto.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	d, now := digest.Of(digest.SHA256, encoded), timestamppb.Now()
	st := done("usual", &repb.ExecuteResponse{Result: &repb.ActionResult{
		OutputFiles: []*repb.OutputFile{{Path: "out/a.o", Digest: d.Proto()}, {Path: "out/a.d", Digest: d.Proto()}},
		ExecutionMetadata: &repb.ExecutedActionMetadata{
			Worker: "worker", QueuedTimestamp: now, WorkerStartTimestamp: now, InputFetchStartTimestamp: now, InputFetchCompletedTimestamp: now,
			ExecutionStartTimestamp: now, ExecutionCompletedTimestamp: now, OutputUploadStartTimestamp: now, OutputUploadCompletedTimestamp: now,
			WorkerCompletedTimestamp: now,
		},
	}})
	st.Action.CommandDigest = d.Proto()
	of := blobs{d: encoded}
	return New(Options{Store: store, Blobs: func(string, digest.Function) Blobs { return of }}), st
}

// mostAllocations limits the allocations of a usual record.
const mostAllocations = 12

// TestMemoryOfRecords measures the allocations of a usual record, from the queue to the disk: its
// garbage slows down dispatch. The texts of digests and of the command line are not reused.
func TestMemoryOfRecords(t *testing.T) {
	r, st := usual(t)
	m := newReader(r)
	defer m.close()
	const records = 1000
	n := testing.AllocsPerRun(20, func() {
		for i := range records {
			r.Add(st, "")
			if i%maxBatch == maxBatch-1 {
				m.readAll(t.Context())
			}
		}
		r.options.Store.Flush()
	}) / records
	t.Logf("a record allocates %.1f times", n)
	if n > mostAllocations {
		t.Errorf("a record allocates %.1f times, want at most %d", n, mostAllocations)
	}
}

func BenchmarkRecord(b *testing.B) {
	r, st := usual(b)
	m := newReader(r)
	defer m.close()
	b.ReportAllocs()
	for i := range b.N {
		r.Add(st, "")
		if i%maxBatch == maxBatch-1 {
			m.readAll(b.Context())
		}
		if i%1000 == 999 {
			r.options.Store.Flush()
		}
	}
	m.readAll(b.Context())
	r.options.Store.Flush()
	b.ReportMetric(float64(r.Lost()), "lost")
}

// TestSameMemory makes a record of much and then one of little, which has nothing of the first.
func TestSameMemory(t *testing.T) {
	_, st := usual(t)
	st.Response.Result.StderrRaw = []byte("error")
	d := &draft{}
	d.write(st, "note")
	d.command(st, newCommands(0))
	little := done("little", &repb.ExecuteResponse{Result: &repb.ActionResult{ExecutionMetadata: &repb.ExecutedActionMetadata{Worker: "w"}}})
	little.Ended, little.Worker = time.Unix(1, 2), ""
	got, want := written(t, d, little), written(t, &draft{}, little)
	if !proto.Equal(got, want) {
		t.Errorf("after another record it is %v, want %v", got, want)
	}
}
