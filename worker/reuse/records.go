package reuse

import (
	"context"
	"encoding/binary"
	"errors"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/records/sharedruns"
)

// Bucket is the bucket of the records in a Store. Its number increases when the meaning of a record
// changes.
const Bucket = "reuse-2"

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

// Find returns an earlier run that would see the same in t, if the outcome is lookback.Reused;
// otherwise why has details, for people.
func (r *Records) Find(ctx context.Context, k record.Key, t lookback.Tree, s lookback.Storage) (run lookback.Run, o lookback.Outcome, why string) {
	known, err := r.get(ctx, k)
	if errors.Is(err, record.ErrNotFound) {
		return lookback.Run{}, lookback.Unknown, ""
	}
	if err != nil {
		return lookback.Run{}, lookback.Failed, err.Error()
	}
	run, _, o, why = t.Match(ctx, known.GetRuns(), s)
	return run, o, why
}

// Keep remembers a run on t with the lookups in seen. It replaces earlier runs that saw the same.
func (r *Records) Keep(ctx context.Context, k record.Key, t lookback.Tree, seen *lookback.Recorder, run lookback.Run) error {
	young, err := t.Encode(ctx, seen, run)
	if err != nil {
		return err
	}
	return r.add(ctx, k, t, young)
}

// add puts a run on t before the known ones.
func (r *Records) add(ctx context.Context, k record.Key, t lookback.Tree, young *reuse.Run) error {
	former, err := r.get(ctx, k)
	if err != nil && !errors.Is(err, record.ErrNotFound) && !errors.Is(err, sharedruns.ErrMalformed) {
		return err
	}
	known, ok := sharedruns.Merge(young, former.GetRuns(), func(m *reuse.Run) bool {
		_, differs, err := t.Differs(ctx, m.GetRoot())
		return differs && err == nil
	})
	if !ok {
		return lookback.ErrNotKept
	}
	b, err := sharedruns.Encode(known)
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
	return sharedruns.Decode(b)
}
