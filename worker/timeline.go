package worker

import (
	"iter"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A stage is a stretch of an action's time on the worker. Each begins at the
// instant at which the one before it ends, so that the times have no gap.
type stage int

const (
	stageAccept  stage = iota // messages are read and checked
	stageFetch                // the input root's first directory is read
	stageMount                // the input root appears
	stagePrepare              // folders are made in it
	stageWait                 // for a slot
	stageExecute              // the command runs
	stageUpload               // outputs are stored
	stageReport               // the answer is made
	stages
)

var stageNames = [stages]string{"accept", "fetch", "mount", "prepare", "wait", "execute", "upload", "report"}

// A timeline holds when an action entered each stage. A stage that was never
// entered, because an earlier one failed, has no length.
type timeline struct {
	queued  *timestamppb.Timestamp
	entered [stages + 1]time.Time // the last is the end
	current stage
}

func (t *timeline) begin(queued *timestamppb.Timestamp) {
	t.queued = queued
	t.entered[stageAccept] = time.Now()
}

func (t *timeline) enter(s stage) {
	now := time.Now()
	for t.current < s {
		t.current++
		t.entered[t.current] = now
	}
}

// again resets the stages after the fetch of inputs: they belong to the discarded run.
func (t *timeline) again() { t.current = min(t.current, stageFetch) }

func (t *timeline) end() { t.enter(stages) }

func (t *timeline) at(s stage) *timestamppb.Timestamp { return timestamppb.New(t.entered[s]) }

func (t *timeline) durations() iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		for s := range stages {
			if !yield(stageNames[s], t.entered[s+1].Sub(t.entered[s])) {
				return
			}
		}
	}
}

// metadata ends the action's time and fills in m, which may be nil.
func (a *action) metadata(m *repb.ExecutedActionMetadata) *repb.ExecutedActionMetadata {
	a.times.end()
	if m == nil {
		m = &repb.ExecutedActionMetadata{}
	}
	m.Worker = workerName(a.p.id)
	m.QueuedTimestamp = a.times.queued
	m.WorkerStartTimestamp = a.times.at(stageAccept)
	m.InputFetchStartTimestamp = a.times.at(stageFetch)
	m.InputFetchCompletedTimestamp = a.times.at(stageWait)
	m.ExecutionStartTimestamp = a.times.at(stageExecute)
	m.ExecutionCompletedTimestamp = a.times.at(stageUpload)
	m.OutputUploadStartTimestamp = a.times.at(stageUpload)
	m.OutputUploadCompletedTimestamp = a.times.at(stageReport)
	m.WorkerCompletedTimestamp = a.times.at(stages)
	m.AuxiliaryMetadata = append(m.AuxiliaryMetadata, a.task.desired.GetAuxiliaryMetadata()...)
	if reused := a.former.Metadata(); reused != nil {
		m.AuxiliaryMetadata = pack(m.AuxiliaryMetadata, reused)
	}
	if a.last.root != nil {
		m.AuxiliaryMetadata = a.last.appendInputUse(m.AuxiliaryMetadata)
		if fetched := a.ahead.Metadata(); fetched != nil {
			m.AuxiliaryMetadata = pack(m.AuxiliaryMetadata, fetched)
		}
	}
	return m
}

// pack appends m. A message that cannot be packed is omitted, as metadata are not part of the
// result.
func pack(list []*anypb.Any, m proto.Message) []*anypb.Any {
	packed, err := anypb.New(m)
	if err != nil {
		return list
	}
	return append(list, packed)
}
