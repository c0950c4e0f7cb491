package sizeclass

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/iscc"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/proto/runs"
	"github.com/forerunner-build/forerunner/records/record"
)

// expectSane fails the test unless what is said of the classes keeps the promises.
func expectSane(t *testing.T, f *farm, a Action, c Conditions) {
	t.Helper()
	s := f.analyzer.Analyze(t.Context(), a)
	list := s.assess(c)
	all, foretold := s.Assess(c)
	if len(all) < len(list) || !slices.IsSortedFunc(all, func(a, b Assessment) int { return cmp.Compare(a.Size, b.Size) }) {
		t.Errorf("of %+v it shows %+v", list, all)
	}
	choice, learner := s.Select(c)
	learner.Abandoned()
	if choice != foretold {
		t.Errorf("chosen %+v, foretold %+v", choice, foretold)
	}
	there := false
	for i, got := range list {
		there = there || got.Size == choice.Class && got.RuledOut == ""
		if !(got.Probability >= 0 && got.Probability <= 1) {
			t.Errorf("class %d: probability %g", got.Size, got.Probability)
		}
		if !(got.Score >= 0) || math.IsInf(got.Score, 0) {
			t.Errorf("class %d: score %g", got.Size, got.Score)
		}
		if got.Timeout <= 0 || got.Timeout > a.Timeout || got.Expected < 0 || got.Acceptable < 0 {
			t.Errorf("class %d: %+v", got.Size, got)
		}
		if i > 0 && i < len(list)-1 && got.Timeout > list[i-1].Timeout {
			t.Errorf("timeout %s on class %d, %s on class %d", list[i-1].Timeout, list[i-1].Size, got.Timeout, got.Size)
		}
	}
	if !there || choice.Timeout <= 0 || choice.Timeout > a.Timeout || choice.Hedge < 0 || choice.Hedge > a.Timeout {
		t.Errorf("chosen %+v of %+v", choice, list)
	}
	if list[len(list)-1].Timeout != a.Timeout {
		t.Errorf("the largest class has the timeout %s, the client's is %s", list[len(list)-1].Timeout, a.Timeout)
	}
}

func someDuration(r *rand.Rand) time.Duration {
	return time.Duration(math.Exp(r.Float64()*40)) * time.Nanosecond
}

// TestProperties has statistics of all kinds, also such as make no sense.
func TestProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		o := Options{Plain: i%4 == 0}
		o.Exponent, o.TimeoutMultiplier = 0.01+0.98*random.Float64(), 1+random.ExpFloat64()
		o.MinTimeout = 1 + someDuration(random)
		var classes []uint32
		for class := uint32(random.IntN(2)); len(classes) <= random.IntN(5); class += 1 + uint32(random.IntN(7)) {
			classes = append(classes, class)
		}
		f := newFarm(t, o, classes...)
		a := testAction(i)
		a.Timeout, a.Mnemonic = 1+someDuration(random), "x"
		stats := &iscc.PreviousExecutionStats{SizeClasses: map[uint32]*iscc.PerSizeClassStats{}}
		known := &runs.Record{}
		for range random.IntN(40) {
			class := uint32(random.IntN(10))
			if stats.SizeClasses[class] == nil {
				stats.SizeClasses[class] = &iscc.PerSizeClassStats{}
			}
			e := &iscc.PreviousExecution{}
			d := durationpb.New(someDuration(random) * time.Duration(1-2*(random.IntN(10)/9)))
			switch random.IntN(4) {
			case 0:
				e.Outcome = &iscc.PreviousExecution_Failed{Failed: &emptypb.Empty{}}
			case 1:
				e.Outcome = &iscc.PreviousExecution_TimedOut{TimedOut: d}
			case 2:
				e.Outcome = &iscc.PreviousExecution_Succeeded{Succeeded: d}
			}
			stats.SizeClasses[class].PreviousExecutions = append(stats.SizeClasses[class].PreviousExecutions, e)
			known.Runs = append(known.Runs, &runs.Run{
				SizeClass: class, Outcome: runs.Outcome(random.IntN(6)), DurationNanoseconds: int64(d.AsDuration()), CpuNanoseconds: int64(someDuration(random)),
				PeakMemoryBytes: int64(someDuration(random)), MemoryLimitBytes: int64(someDuration(random)),
				Cpus: random.ExpFloat64() * 4, Action: random.Uint64(),
			})
		}
		if random.IntN(4) == 0 {
			stats.LastSeenFailure = timestamppb.New(testTime.Add(someDuration(random) - time.Hour))
		}
		kind, _ := a.alike()
		for k, m := range map[record.Key]proto.Message{
			a.key(names.StatisticsBucket): stats, a.key(names.RunsBucket): known, kind: known,
		} {
			if random.IntN(3) > 0 {
				value, err := proto.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				_ = f.store.Put(t.Context(), k, value)
			}
		}
		c := f.conditions()
		c.CanHedge = i%2 == 0
		for i := range c.Classes {
			c.Classes[i].Wait = someDuration(random) * time.Duration(random.IntN(2))
		}
		expectSane(t, f, a, c)
		if t.Failed() {
			t.Fatalf("plain %t, classes %d, statistics %v, runs %v", o.Plain, classes, stats, known)
		}
	}
}

// FuzzRecords has any bytes be stored: they are read or ignored, and written over.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{}, []byte{}, false)
	f.Add([]byte("\x0a\x0a\x08\x01\x12\x06\x0a\x04\x1a\x02\x08\x01"), []byte("\x0a\x08\x08\x08\x10\x01\x18\x80\x94\x17"), false)
	f.Add([]byte("\x12\x06\x08\xf6\xff\xff\xff\x0f"), []byte("\x0a\x09\x39\x00\x00\x00\x00\x00\x00\xf8\x7f"), true)
	f.Add([]byte("\x0a\x7fshort"), []byte("\xff"), false)
	f.Fuzz(func(t *testing.T, stats, record []byte, plain bool) {
		farm := newFarm(t, Options{Plain: plain}, 1, 2, 8)
		a := testAction(1)
		a.Mnemonic = "x"
		kind, _ := a.alike()
		_ = farm.store.Put(t.Context(), a.key(names.StatisticsBucket), stats)
		_ = farm.store.Put(t.Context(), a.key(names.RunsBucket), record)
		_ = farm.store.Put(t.Context(), kind, record)
		expectSane(t, farm, a, farm.conditions())
		farm.learn(a, 2, time.Second)
		expectSane(t, farm, a, farm.conditions())
		value, _ := farm.store.Get(t.Context(), a.key(names.StatisticsBucket))
		learned := parseStatistics(value, 32).runs[2]
		if len(learned) == 0 || len(learned) > 32 || learned[len(learned)-1].Duration != time.Second {
			t.Errorf("learned %+v", learned)
		}
		value, _ = farm.store.Get(t.Context(), a.key(names.RunsBucket))
		if list := parseRuns(value); len(list) == 0 || list[len(list)-1].class != 2 {
			t.Errorf("recorded %+v", list)
		}
	})
}

// TestStatisticsAreKept: the fields that another analyzer stores in the same record must survive.
func TestStatisticsAreKept(t *testing.T) {
	f := newFarm(t, Options{History: 3}, 1, 4)
	a := testAction(1)
	stats := &iscc.PreviousExecutionStats{
		SizeClasses: map[uint32]*iscc.PerSizeClassStats{4: {InitialPageRankProbability: 0.25}},
	}
	stats.ProtoReflect().SetUnknown([]byte("\xc2\x3e\x02hi"))
	value, _ := proto.Marshal(stats)
	_ = f.store.Put(t.Context(), a.key(names.StatisticsBucket), value)
	f.learn(a, 4, 1, 2, 3, 4)
	value, _ = f.store.Get(t.Context(), a.key(names.StatisticsBucket))
	got := &iscc.PreviousExecutionStats{}
	if err := proto.Unmarshal(value, got); err != nil {
		t.Fatal(err)
	}
	for _, d := range []time.Duration{2, 3, 4} {
		stats.SizeClasses[4].PreviousExecutions = append(stats.SizeClasses[4].PreviousExecutions,
			&iscc.PreviousExecution{Outcome: &iscc.PreviousExecution_Succeeded{Succeeded: durationpb.New(d)}})
	}
	if !proto.Equal(got, stats) {
		t.Errorf("%v, want %v", got, stats)
	}
}

// TestLearnConcurrently loses no outcome.
func TestLearnConcurrently(t *testing.T) {
	f := newFarm(t, Options{History: 400}, 1, 4)
	a := testAction(1)
	a.Mnemonic = "x"
	done := make(chan struct{})
	for range 4 {
		go func() {
			for range 50 {
				f.learn(a, 4, time.Second)
				f.analyzer.Analyze(t.Context(), a).Select(f.conditions())
			}
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	value, _ := f.store.Get(t.Context(), a.key(names.StatisticsBucket))
	if n := len(parseStatistics(value, 400).runs[4]); n != 200 {
		t.Errorf("%d outcomes of 200", n)
	}
	if len(f.analyzer.waiting) != 0 {
		t.Errorf("%d records are taken to be written still", len(f.analyzer.waiting))
	}
}

// brokenStore fails, or hangs.
type brokenStore struct {
	hangs bool
	calls int
}

func (s *brokenStore) Get(ctx context.Context, _ record.Key) ([]byte, error) {
	s.calls++
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, errors.New("broken")
}

func (s *brokenStore) Put(ctx context.Context, k record.Key, _ []byte) error {
	_, err := s.Get(ctx, k)
	return err
}

func TestStoreThatIsBroken(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		s := &brokenStore{hangs: hangs}
		analyzer, err := NewAnalyzer(s, Options{StoreTimeout: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		f := &farm{T: t, store: newMapStore(), analyzer: analyzer, classes: []uint32{1, 4}, now: testTime}
		for i := range 50 {
			if _, _, outcome := f.run(testAction(i), program{seconds: 1}); outcome != Succeeded {
				t.Errorf("hangs %t: %s", hangs, outcome)
			}
		}
		if s.calls > 25 { // 250 without patience
			t.Errorf("hangs %t: the store was asked %d times", hangs, s.calls)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"exponent of 1":      {Exponent: 1},
		"exponent below 0":   {Exponent: -0.5},
		"exponent is NaN":    {Exponent: math.NaN()},
		"multiplier":         {TimeoutMultiplier: 0.5},
		"negative timeout":   {MinTimeout: -1},
		"negative cache":     {FailureCache: -1},
		"negative patience":  {StoreTimeout: -1},
		"negative history":   {History: -1},
		"history is endless": {History: 1 << 20},
	} {
		if _, err := NewAnalyzer(newMapStore(), o); err == nil {
			t.Errorf("%s is allowed", name)
		}
	}
}

// FuzzResultOf has a worker report arbitrary results. The learned data must be valid.
func FuzzResultOf(f *testing.F) {
	packed := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		if err != nil {
			f.Fatal(err)
		}
		return a
	}
	for _, m := range []*repb.ExecutedActionMetadata{
		nil,
		{VirtualExecutionDuration: durationpb.New(time.Second)},
		{ExecutionStartTimestamp: &timestamppb.Timestamp{Seconds: 1 << 60}, ExecutionCompletedTimestamp: &timestamppb.Timestamp{Seconds: -1 << 60}},
		{AuxiliaryMetadata: []*anypb.Any{
			packed(&actionstats.Resources{UserTime: durationpb.New(-1), Cpus: 2, CpuQuota: math.NaN(), MemoryLimitBytes: 1, MemoryPeakBytes: -5, OutOfMemoryKills: 1}),
			packed(&resourceusage.POSIXResourceUsage{UserTime: durationpb.New(time.Second)}),
			{TypeUrl: "type.googleapis.com/forerunner.actionstats.Resources", Value: []byte{0xff}},
		}},
	} {
		for _, code := range []codes.Code{codes.OK, codes.DeadlineExceeded, codes.Unavailable} {
			b, err := proto.Marshal(&repb.ExecuteResponse{
				Result: &repb.ActionResult{ExitCode: int32(code), ExecutionMetadata: m}, Status: &spb.Status{Code: int32(code)},
			})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, response []byte) {
		m := &repb.ExecuteResponse{}
		if proto.Unmarshal(response, m) != nil {
			return
		}
		r, outcome, ok := ResultOf(m)
		if ok != (outcome >= Succeeded && outcome <= OutOfMemory) {
			t.Fatalf("outcome %s, %v", outcome, ok)
		}
		if r != r.sane() || r.Duration < 0 || r.CPU < 0 || r.PeakMemoryBytes < 0 || r.CPUs < 0 || math.IsNaN(r.CPUs) {
			t.Fatalf("%+v makes no sense", r)
		}
	})
}
