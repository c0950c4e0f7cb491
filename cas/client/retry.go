package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// longestPause bounds the pause between two attempts, unless the server asks for
// a longer one.
const longestPause = 10 * time.Second

var errStalled = errors.New("no answer from the server")

// retry makes a call, in a slot, until it succeeds, fails for good, or the budget
// is used up. An attempt is broken off after StallAfter.
func (l *link) retry(ctx context.Context, call func(context.Context) error) error {
	b := l.newBudget()
	for {
		err := l.once(ctx, call)
		if err == nil {
			return nil
		}
		if err := b.pause(ctx, err); err != nil {
			return err
		}
	}
}

// once makes one attempt of a call that has one answer.
func (l *link) once(ctx context.Context, call func(context.Context) error) error {
	release, err := l.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, l.options.StallAfter)
	defer cancel()
	return call(ctx)
}

// A budget decides whether and when a failed call is tried again. The clock runs
// from the start or from the last progress.
type budget struct {
	link       *link
	limit      time.Duration
	firstPause time.Duration
	since      time.Time
	attempts   int
}

func (l *link) newBudget() *budget {
	return &budget{link: l, limit: l.options.RetryFor, firstPause: l.firstPause, since: time.Now()}
}

// progress makes the budget whole again.
func (b *budget) progress() { b.since, b.attempts = time.Now(), 0 }

// pause waits until the call that failed with err may be tried again. It returns
// an error, which wraps err, when it may not.
func (b *budget) pause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	asked, ok := retriable(err)
	if !ok {
		return err
	}
	b.attempts++
	wait := max(asked, b.nextPause())
	if left := b.limit - time.Since(b.since); wait > left {
		return fmt.Errorf("gave up after %s and %d attempts: %w",
			time.Since(b.since).Round(time.Millisecond), b.attempts, err)
	}
	b.link.tell(time.Since(b.since), err)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
}

// A call that fails for troubleAfter is logged, and no other for troubleEvery.
const troubleAfter, troubleEvery = 5 * time.Second, time.Minute

// troubles remember when it was logged last that calls fail.
type troubles struct {
	mu     sync.Mutex
	logged time.Time // guarded by mu
}

// tell logs that a call has failed for some time, and will be tried again: whoever waits for it sees
// nothing else.
func (l *link) tell(failing time.Duration, err error) {
	if failing < troubleAfter {
		return
	}
	l.troubles.mu.Lock()
	isDue := l.troubles.logged.IsZero() || time.Since(l.troubles.logged) >= troubleEvery
	if isDue {
		l.troubles.logged = time.Now()
	}
	l.troubles.mu.Unlock()
	if isDue {
		l.log.Warn("storage does not answer; trying again", zap.Duration("for", failing), zap.Error(err))
	}
}

// nextPause doubles with each attempt, with jitter over its upper half.
func (b *budget) nextPause() time.Duration {
	d := longestPause
	if shift := b.attempts - 1; shift < 16 {
		d = min(d, b.firstPause<<shift)
	}
	return d/2 + rand.N(d/2+1)
}

// retriable reports whether a call that failed with err may succeed when it is
// tried again, and the pause that the server asks for, if any. Errors that are
// not the server's or the connection's are final.
func retriable(err error) (asked time.Duration, ok bool) {
	st, isStatus := status.FromError(err)
	if !isStatus {
		return 0, false
	}
	for _, d := range st.Details() {
		if info, has := d.(*errdetails.RetryInfo); has {
			return max(info.GetRetryDelay().AsDuration(), 0), true
		}
	}
	switch st.Code() {
	case codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown:
		// Deadline and cancellation are of the attempt or of a proxy: the caller's own are checked
		// before.
		return 0, true
	case codes.ResourceExhausted:
		return 0, !tooLarge(st)
	}
	return 0, false
}

// tooLarge reports whether a message exceeded a limit of gRPC, which has the code
// of an overloaded server but does not pass.
func tooLarge(st *status.Status) bool {
	return st.Code() == codes.ResourceExhausted &&
		(strings.Contains(st.Message(), "larger than max") || strings.Contains(st.Message(), "exceeds maximum"))
}

// batchRefused reports whether the server takes no such batch at all, so that
// its blobs must be streamed one by one.
func batchRefused(err error) bool {
	st, ok := status.FromError(err)
	if !ok {
		return false
	}
	return st.Code() == codes.Unimplemented || st.Code() == codes.InvalidArgument || tooLarge(st)
}

// maxWrong is the number of attempts to fetch a blob whose bytes do not match its digest. A
// connection or a proxy damages bytes once; a storage with two disks, one of them damaged, every
// other time; and a storage that verifies the blob it has sent reports it missing from then on.
const maxWrong = 3

// wrongBlobs counts, for each blob of one call, the attempts with wrong bytes.
type wrongBlobs struct {
	times map[digest.Digest]int
	most  int
	asked bool // again was true since due was asked
}

// newWrong returns the count of one call. There is one attempt only if Options.RetryFor leaves no
// time for a second one.
func (l *link) newWrong() *wrongBlobs {
	if l.options.RetryFor < l.firstPause {
		return &wrongBlobs{most: 1}
	}
	return &wrongBlobs{most: maxWrong}
}

// again reports whether to request d, which was not delivered because of err, once more: its bytes
// were wrong.
func (w *wrongBlobs) again(d digest.Digest, err error) bool {
	if !errors.Is(err, cas.ErrCorrupt) {
		return false
	}
	if w.times == nil {
		w.times = map[digest.Digest]int{}
	}
	w.times[d]++
	w.asked = w.asked || w.times[d] < w.most
	return w.times[d] < w.most
}

// due reports whether again was true for any blob since the last call of due.
func (w *wrongBlobs) due() bool {
	due := w.asked
	w.asked = false
	return due
}

// A watch breaks an attempt off when one of its steps takes too long. Between the
// steps the caller may take its time.
type watch struct {
	ctx    context.Context // of the attempt
	cancel context.CancelCauseFunc
	limit  time.Duration
	timer  *time.Timer
}

func newWatch(ctx context.Context, limit time.Duration) *watch {
	w := &watch{limit: limit}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(limit, func() { w.cancel(errStalled) })
	w.timer.Stop()
	return w
}

// step runs one call on the stream of the attempt.
func (w *watch) step(call func() error) error {
	w.timer.Reset(w.limit)
	err := call()
	w.timer.Stop()
	if err != nil && context.Cause(w.ctx) == errStalled {
		return status.Errorf(codes.Unavailable, "%v for %s", errStalled, w.limit)
	}
	return err
}

// stop ends the attempt.
func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}
