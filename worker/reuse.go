package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/outputs"
	"github.com/forerunner-build/forerunner/worker/reuse"
)

// lookBackTimeout bounds how long a run is put off to find out whether it can be spared.
const lookBackTimeout = 10 * time.Second

// unwanted is the outcome if the client wants its command to be run.
const unwanted reuse.Outcome = "unwanted"

// hindsight is what is known of former runs of an action, and what this one looks at.
// None of it can fail the action.
type hindsight struct {
	key  record.Key
	tree reuse.Tree
	seen reuse.Recorder

	outcome reuse.Outcome
	why     string
	run     reuse.Run // if it is Reused

	result *repb.ActionResult // of this run, if it can be reused
	blobs  []digest.Digest    // all that it needs
}

// lookBack returns the response of a former run if that was run in the same way and saw nothing
// of its inputs that is different now, else nil. It comes after Options.plan.
func (a *action) lookBack(ctx context.Context) *repb.ExecuteResponse {
	records := a.p.w.opts.Reuse
	if records == nil || a.message.GetDoNotCache() {
		return nil
	}
	name := instance.Join(a.p.w.opts.InstancePrefix, a.task.desired.GetInstanceNameSuffix())
	setting := circumstances{a.how, &a.p.w.opts}
	key, ok := reuse.KeyOf(name, a.fn, a.message, setting.key())
	root, err := digest.FromProto(a.fn, a.message.GetInputRootDigest())
	if !ok || err != nil {
		return nil // making the input root will say what is wrong
	}
	h := &hindsight{key: key, tree: reuse.Tree{Root: root, Source: a.inputs}, outcome: unwanted}
	a.behind = h
	if !a.wantsRun() {
		ctx, cancel := context.WithTimeout(ctx, lookBackTimeout)
		defer cancel()
		h.run, h.outcome, h.why = records.Find(ctx, key, h.tree, a.storage)
	}
	a.p.w.metrics.reuse.WithLabelValues(string(h.outcome)).Inc()
	if h.outcome != reuse.Reused {
		return nil
	}
	return &repb.ExecuteResponse{
		Result: h.run.Result, CachedResult: true,
		Message: fmt.Sprintf("the command was not run: this is the result of action %s, which looked at nothing that has changed since",
			h.run.Action),
	}
}

// wantsRun reports whether the scheduler says that the client wants its command to be run.
func (a *action) wantsRun() bool {
	for _, packed := range a.task.desired.GetAuxiliaryMetadata() {
		var m actionstats.Request
		if packed.MessageIs(&m) && packed.UnmarshalTo(&m) == nil && m.GetSkipCacheLookup() {
			return true
		}
	}
	return false
}

// reused reports whether the action has the result of a former run.
func (a *action) reused() bool { return a.behind != nil && a.behind.outcome == reuse.Reused }

// hook returns the OnLook of the input root.
func (h *hindsight) hook() func(string, vfs.Look) {
	if h == nil {
		return nil
	}
	return h.seen.Look
}

// collected takes note of the outputs of a run.
func (h *hindsight) collected(o *outputs.Outputs) {
	if h == nil {
		return
	}
	h.result, h.blobs = o.Result, slices.Collect(o.Needs())
}

// remember keeps what the action looked at and its result, which may be cached.
func (a *action) remember(ctx context.Context) {
	h := a.behind
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	err := a.p.w.opts.Reuse.Keep(ctx, h.key, h.tree, &h.seen, reuse.Run{
		Action: a.digest, Worker: workerName(a.p.id), Completed: a.times.entered[stageUpload], Result: h.result, Blobs: h.blobs,
	})
	if err != nil {
		a.log.Debug("run will not be reused", zap.Error(err))
	}
}

// appendReuse says which run the result is of.
func (a *action) appendReuse(list []*anypb.Any) []*anypb.Any {
	if !a.reused() {
		return list
	}
	run := a.behind.run
	return pack(list, &actionstats.Reused{
		Action: run.Action.String(), Worker: run.Worker, Completed: timestamppb.New(run.Completed), Paths: int64(run.Paths),
	})
}

// reuseFields are for the log line of the action.
func (a *action) reuseFields() []zap.Field {
	if a.behind == nil {
		return nil
	}
	text := string(a.behind.outcome)
	switch {
	case a.reused():
		text += " " + a.behind.run.Action.String()
	case a.behind.why != "":
		text += ": " + a.behind.why
	}
	return []zap.Field{zap.String("reuse", text)}
}
