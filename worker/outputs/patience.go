package outputs

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/worker/fault"
)

// Collect takes no longer than basePatience, plus the time that a slow and busy disk needs for each
// name and byte.
const (
	basePatience = 5 * time.Minute
	namePatience = 2 * time.Millisecond
	slowestDisk  = 8 << 20 // bytes a second
)

var errSlow = errors.New("the outputs took too long")

// A patience ends a context when its time is over. It belongs to one goroutine.
type patience struct {
	ends  time.Time
	timer *time.Timer
}

// newPatience returns one, and a context that it ends with errSlow.
func newPatience(ctx context.Context) (context.Context, *patience) {
	ctx, end := context.WithCancelCause(ctx)
	return ctx, &patience{
		ends: time.Now().Add(basePatience), timer: time.AfterFunc(basePatience, func() { end(errSlow) }),
	}
}

// grant gives it more time. Nil grants nothing.
func (p *patience) grant(names int, bytes int64) {
	if p == nil {
		return
	}
	// In this order, for bytes may be near the largest number.
	p.ends = p.ends.Add(time.Duration(names)*namePatience + time.Duration(bytes/slowestDisk)*time.Second)
	p.timer.Reset(time.Until(p.ends))
}

// tooSlow is the error for the client if errSlow ended ctx, otherwise err.
func (o *Outputs) tooSlow(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errSlow) {
		return err
	}
	return fault.Errorf(codes.DeadlineExceeded, "the worker took longer to collect the outputs than such outputs may take, "+
		"with %d names in directories and %d files of %d bytes seen until then: return fewer files, or one archive of them; "+
		"if these are few, the worker's disk does not answer: %w", o.names, o.madeFiles, o.madeBytes, err)
}
