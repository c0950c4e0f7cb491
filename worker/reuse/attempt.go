package reuse

import (
	"context"
	"time"

	"go.uber.org/zap"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/records/record"
)

const (
	// findTimeout limits the delay of a run by the search for an earlier one.
	findTimeout = 10 * time.Second
	// keepTimeout bounds the time that remembering one may take.
	keepTimeout = 5 * time.Second
)

// An Attempt has the earlier runs of one action, and the lookups of this one. None of its failures
// reaches the action. The methods of a nil Attempt do nothing: no run is reused. It belongs to one
// goroutine, except Look.
type Attempt struct {
	records *Records
	key     record.Key
	tree    lookback.Tree
	seen    lookback.Recorder

	shared *Shared // nil: other workers are not asked
	claim  Claim   // for them

	outcome lookback.Outcome
	why     string
	run     lookback.Run // if the outcome is Reused
	others  *reuse.Run   // that, if it is not among records

	result *repb.ActionResult // of this run, if it can be reused
	blobs  []digest.Digest    // all that it needs
}

// Attempt begins an Attempt for an action with this key and input root.
func (r *Records) Attempt(k record.Key, t lookback.Tree) *Attempt {
	return &Attempt{records: r, key: k, tree: t, outcome: lookback.Unwanted}
}

// Share allows the use of other workers' runs, and shares this run with them.
func (a *Attempt) Share(s *Shared, c Claim) { a.shared, a.claim = s, c }

// Find looks for an earlier run whose result can be reused: first among those of this worker, then
// among those of others.
func (a *Attempt) Find(ctx context.Context, s lookback.Storage) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	a.shared.refresh()
	a.run, a.outcome, a.why = a.records.Find(ctx, a.key, a.tree, s)
	if a.outcome == lookback.Reused || a.shared == nil {
		return
	}
	run, m, o, why := a.shared.find(ctx, a.claim, a.tree, s)
	if o == lookback.Reused || a.outcome == lookback.Unknown {
		a.run, a.others, a.outcome, a.why = run, m, o, why
	}
}

// Remember remembers another worker's run that was reused.
func (a *Attempt) Remember(ctx context.Context) error {
	if a == nil || a.others == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return a.records.add(ctx, a.key, a.tree, a.others)
}

// Outcome returns the outcome of Find; lookback.Unwanted before.
func (a *Attempt) Outcome() lookback.Outcome { return a.outcome }

// Reused returns the run whose result is reused; false if the action has run itself.
func (a *Attempt) Reused() (lookback.Run, bool) {
	if a == nil || a.outcome != lookback.Reused {
		return lookback.Run{}, false
	}
	return a.run, true
}

// Hook returns the OnLook of the input root.
func (a *Attempt) Hook() func(string, tree.Look) {
	if a == nil {
		return nil
	}
	return a.seen.Look
}

// Made records the result of this run, and all blobs that it refers to.
func (a *Attempt) Made(result *repb.ActionResult, blobs []digest.Digest) {
	if a != nil {
		a.result, a.blobs = result, blobs
	}
}

// Forget forgets the lookups and outputs of a command that runs again.
func (a *Attempt) Forget() {
	if a != nil {
		a.seen, a.result, a.blobs = lookback.Recorder{}, nil, nil
	}
}

// Keep remembers this run, of an action on a worker, and shares it with other workers.
func (a *Attempt) Keep(ctx context.Context, action digest.Digest, worker string, completed time.Time) error {
	if a == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	m, err := a.tree.Encode(ctx, &a.seen, lookback.Run{
		Action: action, Worker: worker, Completed: completed, Result: a.result, Blobs: a.blobs,
	})
	if err != nil {
		return err
	}
	if a.shared != nil {
		a.shared.keep(a.claim, m)
	}
	return a.records.add(ctx, a.key, a.tree, m)
}

// Metadata returns the run whose result is reused; nil: none.
func (a *Attempt) Metadata() *actionstats.Reused {
	run, ok := a.Reused()
	if !ok {
		return nil
	}
	return run.Metadata()
}

// Fields returns fields for the log line of the action.
func (a *Attempt) Fields() []zap.Field {
	if a == nil {
		return nil
	}
	text := string(a.outcome)
	if run, ok := a.Reused(); ok {
		text += " " + run.Action.String()
	} else if a.why != "" {
		text += ": " + a.why
	}
	return []zap.Field{zap.String("reuse", text)}
}
