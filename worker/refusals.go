package worker

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/worker/fault"
)

const (
	// refusedFor is for how long an action that wrote or returned too much is refused, so that it
	// does not run again for each client. maxRefusals bounds how many are remembered.
	refusedFor  = 10 * time.Minute
	maxRefusals = 1000
	// maxWhy bounds the text of a refusal.
	maxWhy = 500
)

// refusals remember actions that wrote or returned too much.
type refusals struct {
	mu    sync.Mutex
	until *bounded.Latest[digest.Digest, refusal] // the oldest ends first; guarded by mu
}

// A refusal has why an action failed, and until when it is not run again.
type refusal struct {
	why   string
	until time.Time
}

func newRefusals() *refusals {
	return &refusals{until: bounded.NewLatest[digest.Digest, refusal](maxRefusals)}
}

// add remembers an action, and why it failed, from now on; with too many it forgets another.
func (e *refusals) add(action digest.Digest, why error, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for oldest, r, ok := e.until.Oldest(); ok && now.After(r.until); oldest, r, ok = e.until.Oldest() {
		e.until.Remove(oldest)
	}
	e.until.Put(action, refusal{bounded.Text(why.Error(), maxWhy), now.Add(refusedFor)})
}

// remove forgets an action.
func (e *refusals) remove(action digest.Digest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until.Remove(action)
}

// left is for how long the action is still refused, and why; 0 if it is not.
func (e *refusals) left(action digest.Digest, now time.Time) (left time.Duration, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, ok := e.until.Peek(action)
	if !ok {
		return 0, ""
	}
	return max(r.until.Sub(now), 0), r.why
}

// refuse is the error for an action that wrote or returned too much not long ago.
func (a *action) refuse() error {
	left, why := a.w.refusals.left(a.digest, time.Now())
	if left == 0 {
		return nil
	}
	return fault.Errorf(codes.FailedPrecondition, "this action exceeded a limit when it last ran here, and is not run again for %s: %s",
		left.Round(time.Second), why)
}
