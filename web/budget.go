package web

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/intake"
)

const (
	// usualAnswer is the size up to which an answer is not counted: package intake reserves this
	// much for each connection. Larger answers are counted in units of this size.
	usualAnswer = 256 << 10
	// maxPage and maxDownload limit an answer if memory is plentiful, minPage and minDownload if it
	// is scarce.
	maxPage, minPage         = 64 << 20, 2 << 20
	maxDownload, minDownload = 32 << 20, 1 << 20
	// leastUnread is the minimum number of files of maximum size that can be in memory until
	// clients have read them.
	leastUnread = 4
	// actions, operations and builds limit how many of these pages are made at once: their data may
	// arrive slowly. Reading an action's input root needs a separate turn.
	actions, operations, builds = 4, 4, 2
	// renders limits how many of these pages are rendered at once. Rendering waits for nothing.
	renders = 2
	// inputBytes is the size of an input of usual name on a page.
	inputBytes = 400
	// unlimited is the assumed memory if there is no limit: every maximum applies in full.
	unlimited = 64 << 30
)

// A budget limits the memory of large answers. Callers take turns to have pages made. If the
// answers that clients have not read yet exceed the budget, the caller with the most of them loses
// one.
type budget struct {
	turns   map[string]*intake.Turns // for making large pages, by page name
	renders *intake.Turns            // for rendering large pages
	unread  *intake.Permits          // for answers that clients have not read yet, in units
	held    *intake.Permits          // for the data of live pages, in units
	page    int                      // maximum size of a page in bytes
	file    int64                    // maximum size of a download in bytes
}

// newBudget returns the budget for a memory limit in bytes; 0 means no limit.
func newBudget(memory int64) *budget {
	if memory == 0 {
		memory = unlimited
	}
	o := &budget{
		turns:   map[string]*intake.Turns{"action": intake.NewTurns(actions), "operation": intake.NewTurns(operations), "build": intake.NewTurns(builds)},
		renders: intake.NewTurns(renders),
		page:    int(max(minPage, min(maxPage, memory/32))), file: max(minDownload, min(maxDownload, memory/64)),
	}
	o.unread = intake.NewPermits(unitsOf(max(memory/16, leastUnread*minDownload)))
	o.held = intake.NewPermits(unitsOf(max(memory/16, maxBuilt*actionBytes)))
	return o
}

// unitsOf returns the number of units for a size in bytes.
func unitsOf(size int64) int { return int((size + usualAnswer - 1) / usualAnswer) }

// inputs is the maximum number of inputs on the page of an action.
func (o *budget) inputs() int { return min(maxShownInputs, o.page/inputBytes) }

// make waits for the turn to make a page. Errors are gRPC statuses.
func (o *budget) make(r *http.Request, name string) (leave func(), err error) {
	return take(r, o.turns[name])
}

// render waits for the turn to render a page. Errors are gRPC statuses.
func (o *budget) render(r *http.Request, name string) (leave func(), err error) {
	if o.turns[name] == nil {
		return func() {}, nil
	}
	return take(r, o.renders)
}

// take waits for a turn; if turns is nil it does not wait.
func take(r *http.Request, turns *intake.Turns) (leave func(), err error) {
	if turns == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), loadTimeout)
	defer cancel()
	if leave, err = turns.Take(ctx, auth.CallerOf(ctx)); err != nil {
		return nil, status.Error(codes.Unavailable, "others look at large pages: try again in a moment")
	}
	return leave, nil
}

// answer reserves size bytes and calls write, which must send the answer to its writer. It returns
// false, without a call, if there is no room. If the reservation is taken away later, the
// connection closes.
func (o *budget) answer(w http.ResponseWriter, r *http.Request, size int64, write func(http.ResponseWriter)) bool {
	if size <= usualAnswer {
		write(w)
		return true
	}
	y := &yielding{ResponseWriter: w}
	leave, ok := o.unread.TakeUnits(auth.CallerOf(r.Context()), unitsOf(size), y.yield)
	if !ok {
		return false
	}
	defer leave()
	defer y.end()
	write(y)
	return true
}

// A yielding is the writer of an answer whose reservation may be taken away. After that, every
// write fails, even if the deadline is set again.
type yielding struct {
	http.ResponseWriter
	mu             sync.Mutex
	yielded, ended bool // guarded by mu
}

// Unwrap implements the interface of http.ResponseController.
func (y *yielding) Unwrap() http.ResponseWriter { return y.ResponseWriter }

// SetWriteDeadline implements the interface of http.ResponseController.
func (y *yielding) SetWriteDeadline(t time.Time) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.yielded {
		return errNoMemory
	}
	return http.NewResponseController(y.ResponseWriter).SetWriteDeadline(t)
}

func (y *yielding) yield() {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.yielded = true; !y.ended {
		_ = http.NewResponseController(y.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	}
}

func (y *yielding) end() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.ended = true
}

// A hold is the reservation for the data of a live page.
type hold struct {
	units int
	leave func()
}

// grow raises the reservation to size bytes. If there is no room, it releases all of it and returns
// false. If the reservation is taken away later, it calls yield.
func (h *hold) grow(o *budget, r *http.Request, size int64, yield func()) (ok bool) {
	units := unitsOf(size)
	if size <= usualAnswer || units <= h.units {
		return true
	}
	h.end()
	leave, ok := o.held.TakeUnits(auth.CallerOf(r.Context()), units, yield)
	if ok {
		h.units, h.leave = units, leave
	}
	return ok
}

// end releases the reservation.
func (h *hold) end() {
	if h.leave != nil {
		h.leave()
	}
	*h = hold{}
}

// errNoMemory is the error for callers whose large answers exceed the budget.
var errNoMemory = status.Error(codes.Unavailable, "too many large pages and files are being read: try again in a moment")

// A page is a buffer of limited size for a page that is being rendered.
type page struct {
	bytes.Buffer
	most int
}

// errLargePage stops the rendering of a page.
var errLargePage = status.Error(codes.FailedPrecondition,
	"this page would be too large for the memory that the scheduler has (tuning.memory_limit): use the forerunner command")

// Write implements io.Writer.
func (p *page) Write(b []byte) (int, error) {
	if p.Len()+len(b) > p.most {
		return 0, errLargePage
	}
	return p.Buffer.Write(b)
}
