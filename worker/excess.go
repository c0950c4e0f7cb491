package worker

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/worker/fault"
)

// An OutputPolicy bounds what one action may write and return. Inputs that it returns
// unchanged do not count.
type OutputPolicy struct {
	// Bytes bounds the sizes of all files that it returns, holes included, for those are hashed and
	// sent like the rest. 0 is what the worker's store may hold.
	Bytes int64
	Files int // 0 is defaultMaxOutputFiles
	// Scratch bounds, in bytes, what the action writes at all: into its input root and
	// its folders for temporary files. 0 is no bound.
	Scratch int64
}

const (
	defaultMaxOutputFiles = 1_000_000
	// maxOutputNames bounds what output directories hold, whatever it is.
	maxOutputNames = 2 * defaultMaxOutputFiles
)

func (p *OutputPolicy) validate(storeBytes int64) error {
	if p.Bytes < 0 || p.Files < 0 || p.Scratch < 0 {
		return fmt.Errorf("outputs have a negative bound: %+v", *p)
	}
	if p.Bytes == 0 {
		p.Bytes = storeBytes
	}
	if p.Files == 0 {
		p.Files = defaultMaxOutputFiles
	}
	return nil
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
	left := a.p.w.excesses.left(a.digest, time.Now())
	if left == 0 {
		return nil
	}
	return fault.Errorf(codes.ResourceExhausted, "this action wrote or returned more than the worker allows when it last ran here; "+
		"it is not run again for %s", left.Round(time.Second))
}

// admit counts a file that the command made, before anybody reads it.
func (o *outputs) admit(size int64) error {
	policy := o.a.p.w.opts.Outputs
	if o.madeFiles++; o.madeFiles > policy.Files {
		return o.excess("the outputs are more than the %d files that an action may return (--max-output-files)", policy.Files)
	}
	if size > policy.Bytes-o.madeBytes { // a difference, for size may be near the largest number
		return o.excess("it has %d bytes, the outputs before it have %d: more than the %d bytes that an action may return "+
			"(--max-output-bytes)", size, o.madeBytes, policy.Bytes)
	}
	o.madeBytes += size
	return nil
}

// admitNames counts what directories hold.
func (o *outputs) admitNames(n int) error {
	if o.names += n; o.names > maxOutputNames {
		return o.excess("the output directories hold more than %d names", maxOutputNames)
	}
	return nil
}

// excess is the fault of an action that returns too much, and has it remembered.
func (o *outputs) excess(format string, args ...any) error {
	o.a.p.w.excesses.add(o.a.digest, time.Now())
	return fault.Errorf(codes.ResourceExhausted, format, args...)
}
