package intake

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A pool is bytes that are shared: all of them, and those of one caller.
type pool int

const (
	uploadPool pool = iota
	messagePool
	pools
)

// A ledger knows what each caller costs now. It may be used concurrently.
type ledger struct {
	bounds  Bounds
	refused func(reason string)
	all     [pools]*semaphore.Weighted

	mu       sync.Mutex
	calls    int                 // guarded by mu, as all below
	waiting  int                 // calls without room
	accounts map[string]*account // of those with calls
}

// An account is what one caller costs. The ledger's mu guards its numbers.
type account struct {
	ledger  *ledger
	key     string
	calls   int
	waiting int
	own     [pools]*semaphore.Weighted
}

func newLedger(b Bounds, refused func(reason string)) *ledger {
	l := &ledger{bounds: b, refused: refused, accounts: map[string]*account{}}
	l.all = [pools]*semaphore.Weighted{semaphore.NewWeighted(b.Uploads), semaphore.NewWeighted(b.Messages)}
	return l
}

// enter charges a call to a caller. Each ends with leave.
func (l *ledger) enter(key string) (*account, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[key]
	switch {
	case l.calls >= l.bounds.Calls:
		return nil, l.refuse("calls", status.Errorf(codes.ResourceExhausted,
			"the server has %d calls in flight: try again later", l.calls))
	case a != nil && a.calls >= l.bounds.CallsOfOne:
		return nil, l.refuse("calls_of_one", status.Errorf(codes.ResourceExhausted,
			"%s has %d calls in flight: try again later", key, a.calls))
	case a == nil:
		b := l.bounds
		a = &account{ledger: l, key: key, own: [pools]*semaphore.Weighted{
			semaphore.NewWeighted(b.UploadsOfOne), semaphore.NewWeighted(b.MessagesOfOne),
		}}
		l.accounts[key] = a
	}
	l.calls++
	a.calls++
	return a, nil
}

// refuse counts an error for a caller who can come back later, and returns it.
func (l *ledger) refuse(reason string, err error) error {
	l.refused(reason)
	return err
}

func (a *account) leave() {
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	if a.calls--; a.calls == 0 {
		delete(l.accounts, a.key)
	}
}

// reserve waits for n bytes of a pool. Who has them gives them back with release; nobody who has any of a
// pool waits for more of it.
func (a *account) reserve(ctx context.Context, p pool, n int64) error {
	if a.own[p].TryAcquire(n) {
		if a.ledger.all[p].TryAcquire(n) {
			return nil
		}
		a.own[p].Release(n)
	}
	if err := a.queue(); err != nil {
		return err
	}
	defer a.unqueue()
	limited, cancel := context.WithTimeout(ctx, a.ledger.bounds.Wait)
	defer cancel()
	err := a.own[p].Acquire(limited, n)
	if err == nil {
		if err = a.ledger.all[p].Acquire(limited, n); err != nil {
			a.own[p].Release(n)
		}
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	return a.ledger.refuse("no_room", status.Errorf(codes.ResourceExhausted,
		"there is no room for a request of %d bytes of %s: try again later", n, a.key))
}

func (a *account) release(p pool, n int64) {
	a.ledger.all[p].Release(n)
	a.own[p].Release(n)
}

// queue counts a call that waits.
func (a *account) queue() error {
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting >= l.bounds.Waiting || a.waiting >= l.bounds.WaitingOfOne {
		return l.refuse("waiting", status.Errorf(codes.ResourceExhausted,
			"%d calls of %s wait for room for their requests: try again later", a.waiting, a.key))
	}
	l.waiting++
	a.waiting++
	return nil
}

func (a *account) unqueue() {
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
	a.waiting--
}

// patience is how long a message of n bytes may take to arrive.
func patience(wait time.Duration, n int) time.Duration {
	return wait + time.Duration(n)*time.Second/slowest
}
