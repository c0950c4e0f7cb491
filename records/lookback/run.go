package lookback

import (
	"context"
	"errors"
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/sharedruns"
)

// ErrNotKept: a run cannot be remembered, which is no fault.
var ErrNotKept = errors.New("the run looked up too many paths to be remembered")

// Storage reports which blobs are missing. A Client of cas/client is one.
type Storage interface {
	FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error)
}

// A Run is a successful run with its result.
type Run struct {
	Action    digest.Digest // the action
	Worker    string
	Completed time.Time
	// Result is without execution_metadata.
	Result *repb.ActionResult
	// Blobs are all blobs of the result, in any order.
	Blobs []digest.Digest
	// Paths is the number of paths that the run looked up.
	Paths int
}

// Metadata identifies the run in the metadata of a result that reuses it.
func (r Run) Metadata() *actionstats.Reused {
	return &actionstats.Reused{
		Action: r.Action.String(), Worker: r.Worker, Completed: timestamppb.New(r.Completed), Paths: int64(r.Paths),
	}
}

// Message tells a client that it gets the result of the run.
func (r Run) Message() string {
	return fmt.Sprintf("the command was not run: this is the result of action %s, which looked at nothing that has changed since", r.Action)
}

// An Outcome is the outcome of a search for a run to reuse.
type Outcome string

// The outcomes.
const (
	Reused  Outcome = "reused"
	Unknown Outcome = "unknown" // no earlier run is known
	Differs Outcome = "differs" // each earlier run saw something that is different now
	Gone    Outcome = "gone"    // its outputs are no longer in the storage
	Failed  Outcome = "failed"  // an error prevented the search
	// Unwanted: the client wants its command to run.
	Unwanted Outcome = "unwanted"
)

// Match returns the first of some earlier runs that saw the same as t shows, also in encoded form,
// if Outcome is Reused; otherwise why has details, for people.
func (t Tree) Match(ctx context.Context, runs []*reuse.Run, s Storage) (run Run, m *reuse.Run, o Outcome, why string) {
	o = Unknown
	// The first run is the latest: its details are the most useful.
	note := func(next Outcome, text string) {
		if o == Unknown {
			o, why = next, text
		}
	}
	for _, m := range runs {
		path, differs, err := t.Differs(ctx, m.GetRoot())
		switch {
		case err != nil:
			note(Failed, err.Error())
			continue
		case differs:
			note(Differs, path)
			continue
		}
		run, err := decode(t.Root.Function(), m)
		if err != nil {
			note(Failed, err.Error())
			continue
		}
		missing, err := s.FindMissing(ctx, run.Blobs)
		switch {
		case err != nil:
			note(Failed, err.Error())
		case len(missing) > 0:
			note(Gone, missing[0].String())
		default:
			return run, m, Reused, ""
		}
	}
	return Run{}, nil, o, why
}

// Encode returns a run on t that took the looks of seen.
func (t Tree) Encode(ctx context.Context, seen *Recorder, run Run) (*reuse.Run, error) {
	looked, all := seen.looked()
	if !all || looked.looks&tree.LookInside != 0 {
		return nil, ErrNotKept
	}
	root, err := t.account(ctx, looked, t.Root)
	if err != nil {
		return nil, fmt.Errorf("record the reads of %s: %w", t.Root, err)
	}
	return encode(run, root)
}

func encode(run Run, root *reuse.Directory) (*reuse.Run, error) {
	result := proto.CloneOf(run.Result)
	result.ExecutionMetadata = nil
	m := &reuse.Run{
		Action: run.Action.Proto(), Worker: run.Worker, Completed: timestamppb.New(run.Completed), Root: root,
	}
	var err error
	if m.Result, err = proto.Marshal(result); err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	for _, d := range run.Blobs {
		m.Blobs = append(m.Blobs, d.Proto())
	}
	return m, nil
}

func decode(fn digest.Function, m *reuse.Run) (Run, error) {
	run := Run{
		Worker: m.GetWorker(), Completed: m.GetCompleted().AsTime(), Result: &repb.ActionResult{}, Paths: pathsOf(m.GetRoot()),
	}
	var err error
	if run.Action, err = digest.FromProto(fn, m.GetAction()); err != nil {
		return Run{}, fmt.Errorf("%w: action: %w", sharedruns.ErrMalformed, err)
	}
	if err := proto.Unmarshal(m.GetResult(), run.Result); err != nil {
		return Run{}, fmt.Errorf("%w: result: %w", sharedruns.ErrMalformed, err)
	}
	for _, b := range m.GetBlobs() {
		d, err := digest.FromProto(fn, b)
		if err != nil {
			return Run{}, fmt.Errorf("%w: blob: %w", sharedruns.ErrMalformed, err)
		}
		run.Blobs = append(run.Blobs, d)
	}
	return run, nil
}

// pathsOf counts the names of lookups.
func pathsOf(m *reuse.Directory) int {
	n := len(m.GetEntries())
	for _, e := range m.GetEntries() {
		n += pathsOf(e.GetDirectory())
	}
	return n
}
