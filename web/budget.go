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
	// usualAnswer is what an answer may take without being counted: package intake allows for it
	// with each connection. Larger ones are counted in units of as much.
	usualAnswer = 256 << 10
	// maxPage and maxDownload bound an answer where there is memory for it, minPage and minDownload
	// where there is little.
	maxPage, minPage         = 64 << 20, 2 << 20
	maxDownload, minDownload = 32 << 20, 1 << 20
	// leastUnread is how many of the largest files there may be at least that their clients have
	// not read yet.
	leastUnread = 4
	// actions, operations and builds are how many of these pages are made at a time: their data may
	// come slowly. An action's input root has a turn of its own.
	actions, operations, builds = 4, 4, 2
	// renders is how many of these pages are written at a time, which waits for nothing.
	renders = 2
	// inputBytes is what an input takes on a page, of usual names.
	inputBytes = 400
	// enough is memory with which all that can be large is as large as it may.
	enough = 64 << 30
)

// A budget bounds what answers take that are much larger than others. Callers take turns to have them
// made, and with those that are not read yet the caller who has most makes room.
type budget struct {
	turns   map[string]*intake.Turns // of pages that take much memory while they are made, by their names
	renders *intake.Turns            // of the same while they are written
	unread  *intake.Permits          // in units
	held    *intake.Permits          // of what pages that move keep, in units
	page    int                      // bytes that a page may have
	file    int64                    // bytes that a download may have
}

// newBudget returns the budget of so much memory; 0 is enough for all.
func newBudget(memory int64) *budget {
	if memory == 0 {
		memory = enough
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

// unitsOf returns the units that so many bytes take.
func unitsOf(size int64) int { return int((size + usualAnswer - 1) / usualAnswer) }

// inputs is how many of an action a page may show.
func (o *budget) inputs() int { return min(maxShownInputs, o.page/inputBytes) }

// make waits for the turn to make a page. Errors are gRPC statuses.
func (o *budget) make(r *http.Request, name string) (leave func(), err error) {
	return take(r, o.turns[name])
}

// render waits for the turn to write a page that has been made. Errors are gRPC statuses.
func (o *budget) render(r *http.Request, name string) (leave func(), err error) {
	if o.turns[name] == nil {
		return func() {}, nil
	}
	return take(r, o.renders)
}

// take waits for one of turns; nil: there is no need to wait.
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

// answer calls write, which sends an answer of so many bytes to the writer that it is given, and
// reports whether it did: not where there is no room for it. Whoever has to make room finds that
// the connection is closed.
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

// A yielding is the writer of an answer that may have to make room. Then nothing is written any
// more, whatever deadline is set afterwards.
type yielding struct {
	http.ResponseWriter
	mu             sync.Mutex
	yielded, ended bool // guarded by mu
}

// Unwrap is for http.ResponseController.
func (y *yielding) Unwrap() http.ResponseWriter { return y.ResponseWriter }

// SetWriteDeadline is for http.ResponseController.
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

// A hold is the room for what a page that moves keeps.
type hold struct {
	units int
	leave func()
}

// grow has it take room for so many bytes, if it has less. Without room it has none, and yield is
// called if it has to make room later.
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

// end gives the room back.
func (h *hold) end() {
	if h.leave != nil {
		h.leave()
	}
	*h = hold{}
}

// errNoMemory is told who asks for more large answers at a time than there is room for.
var errNoMemory = status.Error(codes.Unavailable, "too many large pages and files are being read: try again in a moment")

// A page is one while it is made.
type page struct {
	bytes.Buffer
	most int
}

// errLargePage ends the making of a page.
var errLargePage = status.Error(codes.FailedPrecondition,
	"this page would be too large for the memory that the scheduler has (tuning.memory_limit): use the forerunner command")

// Write implements io.Writer.
func (p *page) Write(b []byte) (int, error) {
	if p.Len()+len(b) > p.most {
		return 0, errLargePage
	}
	return p.Buffer.Write(b)
}
