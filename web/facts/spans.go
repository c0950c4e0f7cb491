package facts

import (
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/timeline"
)

// A Span is a stage on the time line of an action, in thousandths of the whole time.
type Span struct {
	Name     string
	From, To int64
	Took     time.Duration
}

// Width is the width of the stage on the time line, at least 2 so that it is visible.
func (s Span) Width() int64 { return max(s.To-s.From, 2) }

// Spans returns the stages of an action in their order.
func Spans(m *repb.ExecutedActionMetadata) []Span {
	marks := []struct {
		name  string
		until *timestamppb.Timestamp
	}{
		{"", m.GetQueuedTimestamp()},
		{"queued", m.GetWorkerStartTimestamp()},
		{"accepted", m.GetInputFetchStartTimestamp()},
		{"input fetch", m.GetInputFetchCompletedTimestamp()},
		{"wait for a slot", m.GetExecutionStartTimestamp()},
		{"execution", m.GetExecutionCompletedTimestamp()},
		{"wait for upload", m.GetOutputUploadStartTimestamp()},
		{"output upload", m.GetOutputUploadCompletedTimestamp()},
		{"report", m.GetWorkerCompletedTimestamp()},
	}
	var list []Span
	var first, last time.Time
	for _, mark := range marks {
		if mark.until == nil {
			continue
		}
		at := mark.until.AsTime()
		if first.IsZero() {
			first, last = at, at
			continue
		}
		at = timeline.Later(at, last) // two machines' clocks may disagree
		list = append(list, Span{mark.name, int64(last.Sub(first)), int64(at.Sub(first)), at.Sub(last)})
		last = at
	}
	if all := int64(last.Sub(first)); all > 0 {
		for i := range list {
			list[i].From, list[i].To = share(list[i].From, all), share(list[i].To, all)
		}
	}
	return list
}

func share(part, all int64) int64 { return int64(1000 * (float64(part) / float64(all))) }

// SpansSoFar returns the stages of an operation that has not ended.
func SpansSoFar(op *admin.Operation, now time.Time) []Span {
	m := &repb.ExecutedActionMetadata{QueuedTimestamp: op.GetQueued(), WorkerStartTimestamp: timestamppb.New(now)}
	if op.GetStarted() != nil {
		m.WorkerStartTimestamp, m.WorkerCompletedTimestamp = op.GetStarted(), timestamppb.New(now)
	}
	list := Spans(m)
	if op.GetStarted() != nil {
		list[len(list)-1].Name = "on the worker"
	}
	return list
}
