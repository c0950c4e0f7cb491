package pages

import (
	"fmt"
	"math/rand/v2"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/actionstats"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
)

// The farm in the generated records.
const (
	madeWorkers  = 40
	madeSlots    = 32
	madePerBuild = 250 // operations per invocation
	madePackages = 5000
)

// A maker generates records like those of a real farm.
type maker struct {
	*rand.Rand
	begin time.Time
}

func newMaker(begin time.Time) *maker { return &maker{rand.New(rand.NewPCG(1, 2)), begin} }

// digest returns a random digest, which compresses as badly as a real one.
func (m *maker) digest(size int) string {
	return fmt.Sprintf("%016x%016x%016x%016x/%d", m.Uint64(), m.Uint64(), m.Uint64(), m.Uint64(), size)
}

// name returns a UUID.
func (m *maker) name() string {
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", m.Uint32(), m.Uint32()&0xffff, m.Uint32()&0xfff, m.Uint32()&0xffff, m.Uint64()>>16)
}

// record returns the i-th record: a C++ compilation that succeeded, failed or was in the action
// cache.
func (m *maker) record(i int, invocation string) *historypb.Record {
	started := m.begin.Add(time.Duration(i) * time.Second / (madeWorkers * madeSlots))
	queued := started.Add(-time.Duration(m.IntN(5000)) * time.Millisecond)
	ended := started.Add(time.Duration(200+m.IntN(5000)) * time.Millisecond)
	worker := fmt.Sprintf(`{"host":"build-%02d","position":"%d"}`, m.IntN(madeWorkers), m.IntN(madeSlots))
	at := m.IntN(madePackages)
	file := fmt.Sprintf("src/project_%d/package_%d/source_%d", at%50, at, m.IntN(40))
	out := "bazel-out/k8-fastbuild/bin/" + file
	r := &historypb.Record{
		Operation: "operations/" + m.name(), InstanceName: fmt.Sprintf("team-%02d", at%20), DigestFunction: "sha256",
		Action: m.digest(142), Command: m.digest(1800), Invocation: invocation,
		Correlated: "5f0a6b1e-7c2d-4b0a-8a59-000000000000", Configuration: "2a3f5d0c8b1e4a77b6c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5",
		Target: fmt.Sprintf("//src/project_%d/package_%d:source_%d", at%50, at, m.IntN(40)), Mnemonic: []string{"CppCompile", "CppArchive", "Genrule"}[i%3],
		User: fmt.Sprintf("user-%d@example.com", at%300), Client: fmt.Sprintf("10.0.%d.%d", at%8, at%250),
		Queued: timestamppb.New(queued), Started: timestamppb.New(started), Ended: timestamppb.New(ended),
		Worker: worker, Attempts: 1, Outcome: historypb.Outcome_SUCCEEDED,
		Arguments: compilation(file, out), AllOutputs: 2,
		Outputs:  []*historypb.Output{{Path: out + ".o", Digest: m.digest(40000 + m.IntN(40000))}, {Path: out + ".d", Digest: m.digest(3000 + m.IntN(5000))}},
		Metadata: m.metadata(worker, queued, started, ended),
	}
	switch {
	case i%100 == 99:
		r.Outcome, r.ExitCode, r.Stderr = historypb.Outcome_FAILED, 1, &historypb.Stream{Digest: m.digest(900)}
	case i%4 == 3:
		r.Outcome, r.Started, r.Worker, r.Attempts = historypb.Outcome_CACHED, nil, "", 0
	}
	return r
}

// compilation returns a command line.
func compilation(file, out string) []string {
	return append([]string{"/usr/bin/gcc"}, append([]string{
		"-U_FORTIFY_SOURCE", "-fstack-protector", "-Wall", "-Wunused-but-set-parameter", "-Wno-free-nonheap-object", "-fno-omit-frame-pointer",
		"-std=c++17", "-MD", "-fPIC", "-iquote", ".", "-iquote", "bazel-out/k8-fastbuild/bin", "-iquote", "external/bazel_tools",
		"-isystem", "third_party/include", "-fno-canonical-system-headers", "-Wno-builtin-macro-redefined",
		"-D__DATE__=\"redacted\"", "-D__TIMESTAMP__=\"redacted\"", "-D__TIME__=\"redacted\"",
	}, "-MF", out+".d", "-frandom-seed="+out+".o", "-c", file+".cc", "-o", out+".o")...)
}

// metadata returns the metadata of a worker.
func (m *maker) metadata(worker string, queued, started, ended time.Time) *repb.ExecutedActionMetadata {
	at := func(part int) *timestamppb.Timestamp {
		return timestamppb.New(started.Add(ended.Sub(started)*time.Duration(part)/100 + time.Duration(m.IntN(1e6))))
	}
	told := &repb.ExecutedActionMetadata{
		Worker: worker, QueuedTimestamp: timestamppb.New(queued), WorkerStartTimestamp: at(0), InputFetchStartTimestamp: at(1),
		InputFetchCompletedTimestamp: at(5), ExecutionStartTimestamp: at(6), ExecutionCompletedTimestamp: at(90),
		OutputUploadStartTimestamp: at(91), OutputUploadCompletedTimestamp: at(98), WorkerCompletedTimestamp: at(99),
		VirtualExecutionDuration: durationpb.New(ended.Sub(started)),
	}
	for _, figures := range []proto.Message{
		&actionstats.InputRoot{}, &actionstats.Prefetch{}, &actionstats.Files{}, &actionstats.Resources{}, &resourceusage.POSIXResourceUsage{},
	} {
		m.fill(figures.ProtoReflect())
		if packed, err := anypb.New(figures); err == nil { // messages of this program always encode
			told.AuxiliaryMetadata = append(told.AuxiliaryMetadata, packed)
		}
	}
	return told
}

// fill sets every number and duration of a message.
func (m *maker) fill(message protoreflect.Message) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.IsList() || f.IsMap() {
			continue
		}
		switch f.Kind() {
		case protoreflect.Int64Kind:
			message.Set(f, protoreflect.ValueOfInt64(m.Int64N(100_000)))
		case protoreflect.Uint64Kind:
			message.Set(f, protoreflect.ValueOfUint64(m.Uint64N(100_000)))
		case protoreflect.Int32Kind:
			message.Set(f, protoreflect.ValueOfInt32(m.Int32N(1000)))
		case protoreflect.MessageKind:
			if f.Message().FullName() == "google.protobuf.Duration" {
				message.Set(f, protoreflect.ValueOfMessage(durationpb.New(time.Duration(m.Int64N(1e9))).ProtoReflect()))
			}
		}
	}
}
