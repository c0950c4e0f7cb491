package intake

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A kind is something that calls take up. Of each there is so much for all callers, and so much for
// one.
type kind int

const (
	calls    kind = iota // in flight
	guests               // those of callers without identity, if authentication is on
	waiting              // calls that wait for room
	uploads              // bytes that streams of requests take up themselves
	windows              // bytes that clients may send of streams before they are read
	messages             // bytes of requests beyond small ones
	buffers              // bytes that handlers need to answer
	kinds
)

// bytesOfCalls are the kinds that calls wait for, in the order in which one asks for them.
var bytesOfCalls = []kind{uploads, buffers, messages, windows}

// costs are the use of each kind.
type costs [kinds]int64

// most returns the bounds of each kind: of all callers, and of one.
func (b *Bounds) most() (all, one costs) {
	return costs{int64(b.Calls), int64(b.GuestCalls), int64(b.Waiting), b.Uploads, b.Windows, b.Messages, b.Buffers},
		costs{int64(b.CallsOfOne), int64(b.GuestCallsOfOne), int64(b.WaitingOfOne), b.UploadsOfOne, b.WindowsOfOne, b.MessagesOfOne, b.BuffersOfOne}
}

// A ledger knows the present cost of each caller. It may be used concurrently.
type ledger struct {
	bounds  Bounds
	all     costs // at most
	one     costs // of one caller
	refused func(reason string)

	mu       sync.Mutex
	now      costs               // guarded by mu, as all below
	accounts map[string]*account // of those with calls
	queue    [kinds][]*waiter
}

// An account is the cost of one caller. The ledger's mu guards it, as it does lines and charges.
type account struct {
	key   string
	now   costs
	lines map[string]*line
	// searched is when no call of its lines was found that can yield.
	searched [kinds]time.Time
}

// A line is the cost of one connection of a caller. If there is not enough for all, each line gets
// as much as any other: many clients behind one address are one caller, but several lines.
type line struct {
	of   *account
	key  string
	now  costs
	open map[*charge]bool
}

// A charge is the cost of one call.
type charge struct {
	of        *line
	now       costs
	phase     phase
	since     time.Time // of the phase
	waits     bool      // it makes room for other callers while it is answered
	condemned bool      // it was told to end, to yield to others
	life      life
	// gone is closed with the call; nil: nothing waits for that.
	gone   chan struct{}
	unread int    // answers that gRPC has not sent yet
	forget func() // stops its timers
	// expire ends the call. It is called without mu.
	expire func()
}

// A life is the state of a call's handler.
type life int

const (
	open   life = iota // its handler runs
	left               // it has ended, except for answers that gRPC has not sent
	closed             // it costs nothing any more
)

// A phase is the activity of a call.
type phase int

const (
	busy     phase = iota // it is being answered
	arriving              // it waits for its client to send
	queued                // it waits for room
)

func newLedger(b Bounds, refused func(reason string)) *ledger {
	l := &ledger{bounds: b, refused: refused, accounts: map[string]*account{}}
	l.all, l.one = b.most()
	return l
}

// enter charges a call to a connection of a caller, as so many, and waits for yielding calls to
// end. Each call ends with leave. expire must end the call.
func (l *ledger) enter(ctx context.Context, caller Caller, connection string, as int64, expire func()) (*charge, error) {
	c, taken, err := l.admit(caller, connection, as, expire)
	if err != nil {
		return nil, err
	}
	if err := l.inherit(ctx, c, taken); err != nil {
		l.leave(c, nil)
		return nil, err
	}
	l.enterPhase(c, arriving)
	return c, nil
}

// admit charges a call, and returns the shares that others yield for it.
func (l *ledger) admit(caller Caller, connection string, as int64, expire func()) (*charge, []share, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &charge{of: l.lineLocked(caller.Name, connection), phase: arriving, since: time.Now(), expire: expire}
	c.of.open[c] = true
	ks := []kind{guests, calls}
	if !caller.Guest {
		ks = ks[1:]
	}
	var taken []share
	for _, k := range ks {
		var ok bool
		if taken, ok = l.fitLocked(c, k, as, taken); ok {
			l.addLocked(c, k, as)
			continue
		}
		l.returnLocked(taken)
		l.dropLocked(c)
		return nil, nil, l.tooManyLocked(caller, k, as)
	}
	l.holdLocked(c, taken)
	return c, taken, nil
}

// tooManyLocked is the error of a caller that must retry later for lack of a kind of calls.
func (l *ledger) tooManyLocked(caller Caller, k kind, as int64) error {
	var own int64
	if a := l.accounts[caller.Name]; a != nil {
		own = a.now[calls]
	}
	switch {
	case own+as > l.one[calls]:
		return l.refuse("calls_of_one", status.Errorf(codes.ResourceExhausted,
			"%s has %d calls in flight: try again later", caller.Name, own))
	case k == guests:
		return l.refuse("calls_of_guests", status.Errorf(codes.ResourceExhausted,
			"callers without identity have too many calls in flight: try again later, or present a certificate or token"))
	}
	return l.refuse("calls", status.Errorf(codes.ResourceExhausted,
		"the server has %d calls in flight: try again later", l.now[calls]))
}

// lineLocked returns the line of a connection.
func (l *ledger) lineLocked(caller, connection string) *line {
	a := l.accounts[caller]
	if a == nil {
		a = &account{key: caller, lines: map[string]*line{}}
		l.accounts[caller] = a
	}
	c := a.lines[connection]
	if c == nil {
		c = &line{of: a, key: connection, open: map[*charge]bool{}}
		a.lines[connection] = c
	}
	return c
}

// closeLocked forgets a line, and its account, if it has no calls.
func (l *ledger) closeLocked(c *line) {
	if len(c.open) > 0 {
		return
	}
	delete(c.of.lines, c.key)
	if len(c.of.lines) == 0 {
		delete(l.accounts, c.of.key)
	}
}

// leave ends what enter began, and frees the call's resources: once gRPC has sent its answers, or
// conn has ended.
func (l *ledger) leave(c *charge, conn *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.life == closed {
		return
	}
	if c.unread == 0 {
		l.closeChargeLocked(c)
		return
	}
	l.freeLocked(c, waiting, uploads, messages, windows)
	l.grantLocked(bytesOfCalls...)
	c.life = left
	c.enterPhase(arriving)
	c.expire = func() { // the call has ended: nothing else frees its resources
		if conn != nil {
			_ = conn.Close()
		}
	}
	c.forget = l.watch(c, conn)
}

// watch closes a connection that has not taken an answer for long, and forgets a call whose
// connection has ended. The returned function stops it.
func (l *ledger) watch(c *charge, conn *Conn) (stop func()) {
	end := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closeChargeLocked(c)
	}
	deaf := conn.afterClose(end)
	var timer *time.Timer
	timer = time.AfterFunc(max(l.bounds.Stall, time.Second), func() {
		l.mu.Lock()
		idle, gone := time.Since(c.since), c.life == closed
		l.mu.Unlock()
		switch {
		case gone:
		case idle < l.bounds.Stall:
			timer.Reset(l.bounds.Stall - idle)
		default:
			l.refused("unread")
			if conn != nil {
				_ = conn.Close()
			}
			end()
		}
	})
	return func() {
		deaf()
		timer.Stop()
	}
}

// closeChargeLocked takes back all that a call has, once.
func (l *ledger) closeChargeLocked(c *charge) {
	if c.life == closed {
		return
	}
	c.life = closed
	if c.forget != nil {
		c.forget()
	}
	if c.gone != nil {
		close(c.gone)
	}
	l.dropLocked(c)
	l.grantLocked(bytesOfCalls...)
}

// answered records that gRPC has one more answer to send, sent that it has sent it.
func (l *ledger) answered(c *charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.unread++
}

func (l *ledger) sent(c *charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.since = time.Now()
	if c.unread--; c.unread == 0 && c.life == left {
		l.closeChargeLocked(c)
	}
}

// dropLocked takes back all that a call has.
func (l *ledger) dropLocked(c *charge) {
	delete(c.of.open, c)
	l.freeLocked(c, calls, guests, waiting)
	l.freeLocked(c, bytesOfCalls...)
	l.closeLocked(c.of)
}

// arrive records that a call waits for its client, and no longer has earlier data.
func (l *ledger) arrive(c *charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freeLocked(c, windows, messages)
	l.grantLocked(windows, messages)
	c.enterPhase(arriving)
}

// letYield records that a call waits for the progress of others.
func (l *ledger) letYield(c *charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.waits = true
}

// enterPhase sets the activity of a call.
func (l *ledger) enterPhase(c *charge, p phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.enterPhase(p)
}

// isCondemned reports whether a call was told to end, to yield to others.
func (l *ledger) isCondemned(c *charge) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.condemned
}

func (c *charge) enterPhase(p phase) { c.phase, c.since = p, time.Now() }

// addLocked has a call have n more of a kind.
func (l *ledger) addLocked(c *charge, k kind, n int64) {
	for _, of := range []*costs{&l.now, &c.of.of.now, &c.of.now, &c.now} {
		of[k] += n
	}
}

// freeLocked frees a call's resources of some kinds.
func (l *ledger) freeLocked(c *charge, ks ...kind) {
	for _, k := range ks {
		if c.now[k] != 0 {
			l.addLocked(c, k, -c.now[k])
		}
	}
}

// refuse counts an error for a caller that can retry later, and returns it.
func (l *ledger) refuse(reason string, err error) error {
	l.refused(reason)
	return err
}

// patience is how long a message of n bytes may take to arrive.
func patience(wait time.Duration, n int) time.Duration {
	return wait + time.Duration(n)*time.Second/slowest
}
