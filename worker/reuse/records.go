package reuse

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/accounts"
	"github.com/forerunner-build/forerunner/records/record"
)

// Bucket is the bucket of the records in a Store. Its number increases when the meaning of a record
// changes.
const Bucket = "reuse-2"

// errNotKept: a run cannot be remembered, which is no fault.
var errNotKept = errors.New("the run looked up too many paths to be remembered")

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

// Records keep the earlier runs of commands. Their methods may be called concurrently; if two runs
// are kept at the same time under one key, one may get lost.
type Records struct{ store record.Hints }

// New returns the Records in a store.
func New(s record.Hints) *Records { return &Records{store: s} }

// KeyOf returns the key of all actions that run the same command in the same way: with the same
// command, platform, salt and instance name, and the same how, which describes how the worker runs
// it. It is false for an action that cannot be encoded.
func KeyOf(instance string, fn digest.Function, a *repb.Action, how []byte) (record.Key, bool) {
	_, b, err := digest.OfMessage(fn, &repb.Action{
		CommandDigest: a.GetCommandDigest(), Platform: a.GetPlatform(), Salt: a.GetSalt(),
	})
	b = append(binary.AppendUvarint(nil, uint64(len(b))), b...)
	return record.Key{Bucket: Bucket, Instance: instance, Digest: digest.Of(fn, append(b, how...))}, err == nil
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

// Find returns an earlier run that would see the same in t, if the Outcome is Reused; otherwise why
// has details, for people.
func (r *Records) Find(ctx context.Context, k record.Key, t Tree, s Storage) (run Run, o Outcome, why string) {
	known, err := r.get(ctx, k)
	if errors.Is(err, record.ErrNotFound) {
		return Run{}, Unknown, ""
	}
	if err != nil {
		return Run{}, Failed, err.Error()
	}
	run, _, o, why = t.matching(ctx, known.GetRuns(), s)
	return run, o, why
}

// matching returns the first of some earlier runs that saw the same as t shows, also in encoded
// form, if Outcome is Reused; otherwise why has details, for people.
func (t Tree) matching(ctx context.Context, runs []*reuse.Run, s Storage) (run Run, m *reuse.Run, o Outcome, why string) {
	o = Unknown
	// The first run is the latest: its details are the most useful.
	note := func(next Outcome, text string) {
		if o == Unknown {
			o, why = next, text
		}
	}
	for _, m := range runs {
		path, differs, err := t.differs(ctx, m.GetRoot())
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

// Keep remembers a run on t with the lookups in seen. It replaces earlier runs that saw the same.
func (r *Records) Keep(ctx context.Context, k record.Key, t Tree, seen *Recorder, run Run) error {
	young, err := t.encode(ctx, seen, run)
	if err != nil {
		return err
	}
	return r.add(ctx, k, t, young)
}

// encode returns a run on t that took the looks of seen.
func (t Tree) encode(ctx context.Context, seen *Recorder, run Run) (*reuse.Run, error) {
	looked, all := seen.looked()
	if !all || looked.looks&tree.LookInside != 0 {
		return nil, errNotKept
	}
	root, err := t.account(ctx, looked, t.Root)
	if err != nil {
		return nil, fmt.Errorf("record the reads of %s: %w", t.Root, err)
	}
	return encode(run, root)
}

// add puts a run on t before the known ones.
func (r *Records) add(ctx context.Context, k record.Key, t Tree, young *reuse.Run) error {
	former, err := r.get(ctx, k)
	if err != nil && !errors.Is(err, record.ErrNotFound) && !errors.Is(err, accounts.ErrMalformed) {
		return err
	}
	known, ok := accounts.Merge(young, former.GetRuns(), func(m *reuse.Run) bool {
		_, differs, err := t.differs(ctx, m.GetRoot())
		return differs && err == nil
	})
	if !ok {
		return errNotKept
	}
	b, err := accounts.Encode(known)
	if err != nil {
		return err
	}
	return r.store.Put(ctx, k, b)
}

// get returns a record.
func (r *Records) get(ctx context.Context, k record.Key) (*reuse.Record, error) {
	b, err := r.store.Get(ctx, k)
	if err != nil {
		return nil, err
	}
	return accounts.Decode(b)
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
		return Run{}, fmt.Errorf("%w: action: %w", accounts.ErrMalformed, err)
	}
	if err := proto.Unmarshal(m.GetResult(), run.Result); err != nil {
		return Run{}, fmt.Errorf("%w: result: %w", accounts.ErrMalformed, err)
	}
	for _, b := range m.GetBlobs() {
		d, err := digest.FromProto(fn, b)
		if err != nil {
			return Run{}, fmt.Errorf("%w: blob: %w", accounts.ErrMalformed, err)
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
