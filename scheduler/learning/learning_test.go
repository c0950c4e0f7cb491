package learning

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// fakeHints is a record.Hints in memory.
type fakeHints map[record.Key][]byte

func (h fakeHints) Get(_ context.Context, k record.Key) ([]byte, error) {
	if value, ok := h[k]; ok {
		return bytes.Clone(value), nil
	}
	return nil, record.ErrNotFound
}

func (h fakeHints) Put(_ context.Context, k record.Key, value []byte) error {
	h[k] = bytes.Clone(value)
	return nil
}

func newAnalyzer(t *testing.T) *sizeclass.Analyzer {
	t.Helper()
	a, err := sizeclass.NewAnalyzer(fakeHints{}, sizeclass.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestLateRunIsLearned ends a second run, which began because the first took too long. Both must be
// learned from.
func TestLateRunIsLearned(t *testing.T) {
	sizes := newAnalyzer(t)
	both := conditions([]sizeclass.Class{{Size: 1}, {Size: 4}})
	both.CanHedge = true
	for n := range 50 {
		d := digest.Of(digest.SHA256, []byte{byte(n)})
		action := sizeclass.Action{Digest: d, Reduced: d, Timeout: time.Hour}
		choice, learner := sizes.Analyze(t.Context(), action).Select(both)
		if choice.Class != 1 {
			continue // by chance
		}
		if size := sizeOf(choice, time.Hour); !size.Hedge || size.Timeout != 10*time.Second {
			t.Errorf("size %+v of choice %+v", size, choice)
		}
		l := &lessons{learner: learner}
		lesson := l.of(time.Now(), event.Ended{Class: 4, Largest: 4, Late: true, Response: &repb.ExecuteResponse{Result: &repb.ActionResult{
			ExecutionMetadata: &repb.ExecutedActionMetadata{VirtualExecutionDuration: durationpb.New(3 * time.Second)},
		}}})
		sizes.Learn(t.Context(), lesson)
		known, _ := sizes.Analyze(t.Context(), action).Assess(both)
		if known[0].TimedOut != 1 || known[1].Succeeded != 1 || known[1].Median != 3*time.Second {
			t.Errorf("known %+v", known)
		}
		return
	}
	t.Error("no action started on class 1")
}

// TestSpilledRunIsLearned: a run on a larger class than the chosen one, whose workers were busy,
// must be learned as a run there.
func TestSpilledRunIsLearned(t *testing.T) {
	sizes := newAnalyzer(t)
	three := conditions([]sizeclass.Class{{Size: 1}, {Size: 4}, {Size: 8}})
	for _, failed := range []bool{false, true} {
		d := digest.Of(digest.SHA256, fmt.Append(nil, failed))
		action := sizeclass.Action{Digest: d, Reduced: d, Timeout: time.Hour}
		_, learner := sizes.Analyze(t.Context(), action).Select(conditions([]sizeclass.Class{{Size: 1}}))
		l := &lessons{learner: learner}
		result := &repb.ActionResult{ExecutionMetadata: &repb.ExecutedActionMetadata{VirtualExecutionDuration: durationpb.New(3 * time.Second)}}
		if failed {
			result.ExitCode = 1
			if lesson := l.of(time.Now(), event.Ended{Class: 4, Largest: 8, Again: true, Response: &repb.ExecuteResponse{Result: result}}); lesson != nil {
				t.Errorf("learned %+v before the largest class has had it", lesson)
			}
			result = &repb.ActionResult{ExecutionMetadata: result.ExecutionMetadata}
		}
		ended := event.Ended{Class: 4, Largest: 8, Response: &repb.ExecuteResponse{Result: result}}
		if failed {
			ended.Class = 8
		}
		sizes.Learn(t.Context(), l.of(time.Now(), ended))
		known, _ := sizes.Analyze(t.Context(), action).Assess(three)
		got := [3][2]int{}
		for i, k := range known {
			got[i] = [2]int{k.Succeeded, k.Failed}
		}
		want := [3][2]int{{}, {1, 0}, {}}
		if failed {
			want = [3][2]int{{}, {0, 1}, {1, 0}}
		}
		if got != want {
			t.Errorf("failed %t: successes and failures by class %v, want %v", failed, got, want)
		}
	}
}

// TestCutShortTeachesNothing has a run exceed a time limit that only a smaller class has, on a
// class that has become the largest meanwhile. That must not count as a failure on the largest
// class.
func TestCutShortTeachesNothing(t *testing.T) {
	sizes := newAnalyzer(t)
	d := digest.Of(digest.SHA256, []byte("action"))
	_, learner := sizes.Analyze(t.Context(), sizeclass.Action{Digest: d, Reduced: d, Timeout: time.Hour}).
		Select(conditions([]sizeclass.Class{{Size: 1}}))
	l := &lessons{learner: learner}
	late := &repb.ExecuteResponse{Status: &spb.Status{Code: int32(codes.DeadlineExceeded)}}
	if lesson := l.of(time.Now(), event.Ended{Class: 1, Largest: 1, Again: true, Response: late}); lesson != nil {
		t.Errorf("learned %+v", lesson)
	}
}
