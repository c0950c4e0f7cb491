package comparison

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/stored"
)

const (
	// maxDifferences limits the differences of each kind, maxSaid the sentences, maxCell the bytes
	// of each text in a difference.
	maxDifferences, maxSaid, maxCell = 20, 10, 1 << 10
)

// A Source reads records, blobs and profiles with the rights of the caller.
type Source struct {
	// Records lists completed operations.
	Records func(context.Context, *admin.ListRecordsRequest) (*admin.ListRecordsResponse, error)
	// Blobs returns the storage of an instance name.
	Blobs func(instance string, fn digest.Function) stored.Blobs
	// Profile returns the profile for an action's reduced digest; nil if unknown.
	Profile func(ctx context.Context, instance string, reduced digest.Digest) ([]byte, error)
}

// An Explanation says why an action ran.
type Explanation struct {
	// Reasons are sentences, the most important first.
	Reasons []string `json:"reasons"`
	// Other is the run that the action is compared with; nil if none is known.
	Other *historypb.Record `json:"-"`
	// Kinds lists the differences by kind.
	Kinds []Kind `json:"differences"`
	// Problem says why Kinds may be incomplete.
	Problem string `json:"problem,omitempty"`
}

// A Kind has the differences of one kind, such as Environment.
type Kind struct {
	Name string       `json:"kind"`
	List []Difference `json:"list"`
	More int          `json:"more,omitempty"`
}

// IsInputs reports whether these are files, symlinks and folders of the input root.
func (k Kind) IsInputs() bool { return k.Name == inputs }

// A Difference has the values of the other run and of this one; empty if a run has none.
type Difference struct {
	Name  string `json:"name,omitempty"`
	Other string `json:"other"`
	This  string `json:"this"`
	// Read says whether runs of the command read this input; empty if unknown.
	Read Read `json:"read,omitempty"`
}

// A Read says which runs read an input.
type Read string

// All values of Read.
const (
	ByLast  Read = "by the last run"
	Earlier Read = "by an earlier run"
	ByNone  Read = "no"
)

// Explain says why the operation of a record ran.
func (s Source) Explain(ctx context.Context, r *historypb.Record) *Explanation {
	x := &explaining{Source: s, ctx: ctx, r: r}
	x.explain()
	return &x.Explanation
}

// An explaining builds an Explanation.
type explaining struct {
	Source
	Explanation
	ctx context.Context // of the one call to Explain
	r   *historypb.Record
}

func (x *explaining) explain() {
	r := x.r
	switch {
	case Skipped(r):
		x.say("The result was not in the action cache, but the run was skipped: no input that an earlier run read has changed.")
	case x.wasCached():
		x.say("The result was in the action cache: nothing ran.")
	}
	fn, err := stored.Function(r.GetDigestFunction())
	if err != nil {
		x.Problem = err.Error()
		return
	}
	blobs := x.Blobs(r.GetInstanceName(), fn)
	now, err := readAction(x.ctx, blobs, fn, r.GetAction())
	if err != nil {
		x.Problem = unreadable("this action", err)
	} else if now.GetDoNotCache() {
		x.say("The client forbids to cache the result (do_not_cache), so the action runs each time.")
	}
	if same := x.sameBefore(); same != nil {
		x.Other = same
		x.say("%s", sameText(same, now, x.wasCached()))
		return
	}
	if x.Other = x.nearest(); x.Other == nil || now == nil {
		return
	}
	before, err := readAction(x.ctx, blobs, fn, x.Other.GetAction())
	if err != nil {
		x.Problem = unreadable("the action of the other run", err)
		return
	}
	x.compare(blobs, before, now)
	x.sum()
}

// Skipped reports whether the operation of a record has the result of an earlier run, which was not
// in the action cache for its action.
func Skipped(r *historypb.Record) bool {
	return r.GetOutcome() == historypb.Outcome_CACHED && Spared(r.GetMessage(), r.GetMetadata())
}

// wasCached reports whether the action cache had the result.
func (x *explaining) wasCached() bool {
	return x.r.GetOutcome() == historypb.Outcome_CACHED && !Skipped(x.r)
}

// Spared reports whether the message and the metadata of a cached result say that the action was
// spared for an earlier run. A result from the action cache may have been reused before, too, but
// comes without a message.
func Spared(message string, m *repb.ExecutedActionMetadata) bool {
	return message != "" && slices.ContainsFunc(m.GetAuxiliaryMetadata(), func(a *anypb.Any) bool {
		return a.MessageIs((*actionstats.Reused)(nil))
	})
}

func (x *explaining) say(format string, args ...any) {
	x.Reasons = append(x.Reasons, fmt.Sprintf(format, args...))
}

// unreadable says why a comparison is incomplete, and what the user can do.
func unreadable(what string, err error) string {
	switch {
	case errors.Is(err, digest.ErrNotFound) || status.Code(err) == codes.NotFound:
		return fmt.Sprintf("The storage no longer has %s, or its command: run the target again, and compare with that run.", what)
	case status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.Unauthenticated:
		return fmt.Sprintf("You may not read %s: %s", what, status.Convert(err).Message())
	}
	return fmt.Sprintf("%s cannot be read: %s", what, status.Convert(err).Message())
}

// sameText describes the outcome of an earlier run of the same action. cached: the result of
// this one was in the action cache.
func sameText(same *historypb.Record, now *action, cached bool) string {
	run := fmt.Sprintf("The same action ended before, %s (%s)", same.GetEnded().AsTime().UTC().Format(time.RFC3339), same.GetOperation())
	succeeded := same.GetOutcome() == historypb.Outcome_SUCCEEDED || same.GetOutcome() == historypb.Outcome_CACHED
	switch {
	case cached && succeeded:
		return run + ", with success, and nothing differs."
	case cached:
		return run + ", and did not succeed: the result is of another run."
	case succeeded:
		if now != nil && now.GetDoNotCache() {
			return run + ", with the same command and inputs."
		}
		return run + ", with success, and nothing differs. Its result was not used: the client did not accept it (skip_cache_lookup; " +
			"in Bazel --noremote_accept_cached), or the storage lacks the result or one of its outputs, or the result was not allowed to be cached."
	}
	return run + ", and did not succeed: only successful results are cached."
}

// compare lists the differences of two actions.
func (x *explaining) compare(blobs stored.Blobs, before, now *action) {
	x.add("Command line", ofArguments(before.command.GetArguments(), now.command.GetArguments()))
	x.add("Environment", between(before.environment(), now.environment()))
	x.add("Platform", between(before.platform(), now.platform()))
	x.add("Other", between(before.rest(), now.rest()))
	w := &walk{blobs: blobs, fn: now.fn, reads: x.reads(before, now)}
	list := w.compare(x.ctx, before.GetInputRootDigest(), now.GetInputRootDigest())
	x.Problem = w.problem
	x.add(inputs, list)
}

func (x *explaining) add(kind string, list []Difference) {
	n := len(list)
	if n == 0 {
		return
	}
	list = list[:min(n, maxDifferences)]
	for i, d := range list {
		list[i] = Difference{bounded.Text(d.Name, maxCell), bounded.Text(d.Other, maxCell), bounded.Text(d.This, maxCell), d.Read}
	}
	x.Kinds = append(x.Kinds, Kind{kind, list, n - len(list)})
}

// An action is an Action with its Command.
type action struct {
	*repb.Action
	fn      digest.Function
	command *repb.Command
}

func readAction(ctx context.Context, blobs stored.Blobs, fn digest.Function, hashAndSize string) (*action, error) {
	d, err := stored.Digest(fn, hashAndSize)
	if err != nil {
		return nil, err
	}
	a := &action{&repb.Action{}, fn, &repb.Command{}}
	if _, err := stored.Message(ctx, blobs, d, stored.MaxBytes, a.Action); err != nil {
		return nil, err
	}
	if d, err = digest.FromProto(fn, a.GetCommandDigest()); err != nil {
		return nil, err
	}
	if _, err = stored.Message(ctx, blobs, d, stored.MaxBytes, a.command); err != nil {
		return nil, err
	}
	return a, nil
}
