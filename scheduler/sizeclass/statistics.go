package sizeclass

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/iscc"
)

// statistics are the valid contents of Buildbarn's message.
type statistics struct {
	// runs are those on each class, the oldest first.
	runs map[uint32][]run
	// failed is when the action last failed on the largest class, zero if never.
	failed time.Time
}

// parseStatistics returns the last outcomes, at most limit of each class. It skips unreadable ones.
func parseStatistics(value []byte, limit int) statistics {
	var m iscc.PreviousExecutionStats
	if proto.Unmarshal(value, &m) != nil {
		return statistics{}
	}
	s := statistics{runs: map[uint32][]run{}}
	if t := m.GetLastSeenFailure(); t != nil && t.CheckValid() == nil {
		s.failed = t.AsTime()
	}
	for class, stats := range m.GetSizeClasses() {
		var list []run
		for _, e := range last(stats.GetPreviousExecutions(), limit) {
			if r := outcomeOf(class, e); r.valid() {
				list = append(list, r)
			}
		}
		if len(list) > 0 {
			s.runs[class] = list
		}
	}
	return s
}

func outcomeOf(class uint32, e *iscc.PreviousExecution) run {
	r := run{class: class}
	switch o := e.GetOutcome().(type) {
	case *iscc.PreviousExecution_Failed:
		r.outcome = Failed
	case *iscc.PreviousExecution_TimedOut:
		r.outcome, r.Duration = TimedOut, duration(o.TimedOut)
	case *iscc.PreviousExecution_Succeeded:
		r.outcome, r.Duration = Succeeded, duration(o.Succeeded)
	}
	return r
}

// duration returns a duration unchanged; -1 if it is malformed, 0 if there is none.
func duration(d *durationpb.Duration) time.Duration {
	if d != nil && d.CheckValid() != nil {
		return -1
	}
	return d.AsDuration()
}

// all returns the runs on all classes, the smallest first: when they were is not known.
func (s statistics) all() (list []run) {
	for _, class := range slices.Sorted(maps.Keys(s.runs)) {
		list = append(list, s.runs[class]...)
	}
	return list
}

// updateStatistics returns an encoded message with the new outcomes. It keeps unknown fields and at
// most limit outcomes of each class. It replaces an unreadable value.
func updateStatistics(value []byte, events []event, limit int) ([]byte, error) {
	m := &iscc.PreviousExecutionStats{}
	if proto.Unmarshal(value, m) != nil {
		m = &iscc.PreviousExecutionStats{}
	}
	for _, e := range events {
		if !e.failed.IsZero() {
			m.LastSeenFailure = timestamppb.New(e.failed)
			continue
		}
		stats := m.GetSizeClasses()[e.run.class]
		if stats == nil {
			stats = &iscc.PerSizeClassStats{}
			if m.SizeClasses == nil {
				m.SizeClasses = map[uint32]*iscc.PerSizeClassStats{}
			}
			m.SizeClasses[e.run.class] = stats
		}
		stats.PreviousExecutions = last(append(stats.PreviousExecutions, e.run.execution()), limit)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// execution is r in Buildbarn's message.
func (r run) execution() *iscc.PreviousExecution {
	switch r.outcome {
	case Succeeded:
		return &iscc.PreviousExecution{Outcome: &iscc.PreviousExecution_Succeeded{Succeeded: durationpb.New(r.Duration)}}
	case TimedOut:
		return &iscc.PreviousExecution{Outcome: &iscc.PreviousExecution_TimedOut{TimedOut: durationpb.New(r.Duration)}}
	}
	return &iscc.PreviousExecution{Outcome: &iscc.PreviousExecution_Failed{Failed: &emptypb.Empty{}}}
}
