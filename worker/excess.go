package worker

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/worker/fault"
)

const (
	// excessMemory is for how long an action that wrote or returned too much is refused, so that
	// clients which try again do not run it again. mostExcesses bounds how many are
	// remembered.
	excessMemory = 10 * time.Minute
	mostExcesses = 1000
)

// excesses remembers actions that wrote or returned too much. The zero value is ready.
type excesses struct {
	mu    sync.Mutex
	until map[digest.Digest]time.Time
}

// add remembers an action from now on; with too many it forgets another.
func (e *excesses) add(action digest.Digest, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.until == nil {
		e.until = map[digest.Digest]time.Time{}
	}
	for d, until := range e.until {
		if len(e.until) >= mostExcesses || now.After(until) {
			delete(e.until, d)
		}
	}
	e.until[action] = now.Add(excessMemory)
}

// remove forgets an action.
func (e *excesses) remove(action digest.Digest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.until, action)
}

// left is for how long the action is still refused; 0 if it is not.
func (e *excesses) left(action digest.Digest, now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	until, ok := e.until[action]
	if !ok {
		return 0
	}
	return max(until.Sub(now), 0)
}

// refuse is the error for an action that wrote or returned too much not long ago.
func (a *action) refuse() error {
	left := a.w.excesses.left(a.digest, time.Now())
	if left == 0 {
		return nil
	}
	return fault.Errorf(codes.ResourceExhausted, "this action wrote or returned more than the worker allows when it last ran here; "+
		"it is not run again for %s", left.Round(time.Second))
}
