package web

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/intake"
)

const (
	// usualAnswer is what an answer may take without being counted: package intake allows for it
	// with each connection.
	usualAnswer = 256 << 10
	// maxPage and maxDownload bound an answer where there is memory for it, minPage and minDownload
	// where there is little.
	maxPage, minPage         = 64 << 20, 2 << 20
	maxDownload, minDownload = 32 << 20, 1 << 20
	// leastUnread is how many large answers there may be at least that their clients have not read
	// yet.
	leastUnread = 4
	// builds is how many pages of builds are made at a time.
	builds = 2
	// inputBytes is what an input takes on a page, of usual names.
	inputBytes = 400
)

// A room bounds what answers take that are much larger than others. Callers take turns to have them
// made, and with those that are not read yet the caller who has most makes room.
type room struct {
	turns  map[string]*intake.Turns // of pages that take much memory while they are made, by their names
	unread *intake.Places
	held   *intake.Places // of what pages that move keep
	page   int            // bytes that a page may have
	file   int64          // bytes that a download may have
}

// newRoom returns the room that there is with so much memory; 0: enough.
func newRoom(memory int64) *room {
	if memory == 0 {
		memory = 1 << 40
	}
	o := &room{
		turns: map[string]*intake.Turns{"action": intake.NewTurns(trees), "operation": intake.NewTurns(leastUnread), "build": intake.NewTurns(builds)},
		page:  int(max(minPage, min(maxPage, memory/32))), file: max(minDownload, min(maxDownload, memory/64)),
	}
	places := func(each int64) *intake.Places {
		return intake.NewPlaces(int(max(leastUnread, min(memory/16/each, maxViewers))))
	}
	o.unread, o.held = places(o.file), places(maxBuilt*actionBytes)
	return o
}

// inputs is how many of an action a page may show.
func (o *room) inputs() int { return min(maxShownInputs, o.page/inputBytes) }

// make waits for the turn to make a page. Errors are gRPC statuses.
func (o *room) make(r *http.Request, name string) (leave func(), err error) {
	turns := o.turns[name]
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

// answer calls write, which sends an answer of so many bytes, and reports whether it did: not where
// there is no room for it. Whoever has to make room finds that the connection is closed.
func (o *room) answer(w http.ResponseWriter, r *http.Request, size int64, write func()) bool {
	if size <= usualAnswer {
		write()
		return true
	}
	control := http.NewResponseController(w)
	leave, ok := o.unread.Take(auth.CallerOf(r.Context()), func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) })
	if !ok {
		return false
	}
	defer leave()
	write()
	return true
}

// hold takes room for what a page that moves keeps, until leave is called. yield is called if it
// has to make room before.
func (o *room) hold(r *http.Request, size int64, yield func()) (leave func(), ok bool) {
	if size <= usualAnswer {
		return func() {}, true
	}
	return o.held.Take(auth.CallerOf(r.Context()), yield)
}

// errNoRoom is told who asks for more large answers at a time than there is room for.
var errNoRoom = status.Error(codes.Unavailable, "too many large pages and files are being read: try again in a moment")

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
