package worker

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// An OutputPolicy bounds what one action may write and return. Inputs that it returns
// unchanged do not count. Zero fields are no bound.
type OutputPolicy struct {
	Bytes int64 // of all files that it returns
	Files int
	// Scratch bounds, in bytes, what the action writes at all: into its input root and
	// its folders for temporary files.
	Scratch int64
}

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
	left := a.p.w.excesses.left(a.digest, time.Now())
	if left == 0 {
		return nil
	}
	return failf(codes.ResourceExhausted, "this action wrote or returned more than the worker allows when it last ran here; "+
		"it is not run again for %s", left.Round(time.Second))
}

// admit counts a file that the command made, before it is stored.
func (o *outputs) admit(size int64) error {
	policy := o.a.p.w.opts.Outputs
	o.madeFiles++
	o.madeBytes += size
	var err error
	switch {
	case policy.Files > 0 && o.madeFiles > policy.Files:
		err = failf(codes.ResourceExhausted, "the outputs are more than the %d files that an action may return", policy.Files)
	case policy.Bytes > 0 && o.madeBytes > policy.Bytes:
		err = failf(codes.ResourceExhausted, "the outputs are more than the %d bytes that an action may return", policy.Bytes)
	default:
		return nil
	}
	o.a.p.w.excesses.add(o.a.digest, time.Now())
	return err
}
