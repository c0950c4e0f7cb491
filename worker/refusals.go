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
	// refusedFor is for how long an action that wrote or returned too much is refused, so that
	// clients which try again do not run it again. maxRefusals bounds how many are
	// remembered.
	refusedFor  = 10 * time.Minute
	maxRefusals = 1000
)

// refusals remember actions that wrote or returned too much.
type refusals struct {
	mu    sync.Mutex
	until *bounded.Latest[digest.Digest, time.Time] // the oldest ends first; guarded by mu
}

func newRefusals() *refusals {
	return &refusals{until: bounded.NewLatest[digest.Digest, time.Time](maxRefusals)}
}

// add remembers an action from now on; with too many it forgets another.
func (e *refusals) add(action digest.Digest, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for oldest, until, ok := e.until.Oldest(); ok && now.After(until); oldest, until, ok = e.until.Oldest() {
		e.until.Remove(oldest)
	}
	e.until.Put(action, now.Add(refusedFor))
}

// remove forgets an action.
func (e *refusals) remove(action digest.Digest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until.Remove(action)
}

// left is for how long the action is still refused; 0 if it is not.
func (e *refusals) left(action digest.Digest, now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	until, ok := e.until.Peek(action)
	if !ok {
		return 0
	}
	return max(until.Sub(now), 0)
}

// refuse is the error for an action that wrote or returned too much not long ago.
func (a *action) refuse() error {
	left := a.w.refusals.left(a.digest, time.Now())
	if left == 0 {
		return nil
	}
	return fault.Errorf(codes.ResourceExhausted, "this action wrote or returned more, or used more kernel memory, than the worker allows when it last ran here; "+
		"it is not run again for %s", left.Round(time.Second))
}
