package finished

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

// compiled is the i-th compilation, with its Command.
func compiled(i int) (*event.Status, []byte) {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	random := func() digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, r.Uint64())) }
	at := func(part int) *timestamppb.Timestamp {
		return timestamppb.New(time.Unix(1e9+int64(i), int64(part)*1e7))
	}
	source := fmt.Sprintf("lib/package_%d/source_%d.cc", i/20, i)
	command, _ := proto.Marshal(&repb.Command{
		Arguments:            []string{"/usr/bin/g++", "-O2", "-Wall", "-fno-omit-frame-pointer", "-iquote", ".", "-c", source, "-o", "out/" + source + ".o"},
		EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "PATH", Value: "/bin:/usr/bin"}},
		OutputPaths:          []string{"out/" + source + ".o"},
	})
	stats, _ := anypb.New(&actionstats.InputRoot{BlobsFetched: r.Int64N(1000), BytesFetched: r.Int64N(1 << 30), RootWhole: true})
	name := fmt.Sprintf("operations/%08x-%04x-4%03x-9%03x-%012x", r.Uint32(), r.Uint32()&0xffff, r.Uint32()&0xfff, r.Uint32()&0xfff, r.Uint64()>>16)
	st := done(name[len("operations/"):], &repb.ExecuteResponse{Result: &repb.ActionResult{
		OutputFiles: []*repb.OutputFile{{Path: "out/" + source + ".o", Digest: random().Proto()}, {Path: "out/" + source + ".d", Digest: random().Proto()}},
		ExecutionMetadata: &repb.ExecutedActionMetadata{
			Worker: fmt.Sprintf(`{"host":"build-%d","position":"%d"}`, i%40, i%32), QueuedTimestamp: at(0),
			WorkerStartTimestamp: at(1), InputFetchStartTimestamp: at(2), InputFetchCompletedTimestamp: at(3),
			ExecutionStartTimestamp: at(4), ExecutionCompletedTimestamp: at(5),
			OutputUploadStartTimestamp: at(6), OutputUploadCompletedTimestamp: at(7), WorkerCompletedTimestamp: at(8),
			AuxiliaryMetadata: []*anypb.Any{stats},
		},
	}})
	st.Digest, st.Action.CommandDigest = random(), digest.Of(digest.SHA256, command).Proto()
	st.Worker = st.Response.Result.ExecutionMetadata.Worker
	st.Request = request.Metadata{
		Target: "//" + source, Mnemonic: "CppCompile", ToolInvocation: fmt.Sprintf("8d5ac1f4-2a0f-4e73-9d3e-%012d", i/25),
		Correlated: "5f0a6b1e-7c2d-4b0a-8a59-000000000000", Configuration: "2a3f5d0c8b1e4a77b6c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5",
	}
	return st, command
}

// BenchmarkRecords makes records of operations, and writes them.
func BenchmarkRecords(b *testing.B) {
	store, err := history.Open(b.TempDir(), history.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	const batch = 16 << 10
	var ops [batch]*event.Status
	var commands [batch][]byte
	for i := range ops {
		ops[i], commands[i] = compiled(i)
	}
	r := New(Options{Store: store})
	m := newReader(r)
	defer m.close()
	b.ReportAllocs()
	began := cpuTime(b)
	for i := 0; b.Loop(); i++ {
		at := i % batch
		operation.AddExtras(ops[at].Operation).Sent = &operation.Sent{} // as of another operation
		r.Sent(ops[at].Operation, commands[at])
		r.Add(ops[at], "")
		if i%maxBatch == maxBatch-1 {
			m.readAll(b.Context())
		}
		if i%1024 == 1023 {
			store.Flush()
		}
	}
	b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op")
}

// cpuTime is the CPU time of this process in nanoseconds: that of the garbage collector is a part.
func cpuTime(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
