package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/proto/names"
)

const (
	eventStream = "text/event-stream"
	// maxViewers bounds the pages that move at a time. Others stand still.
	maxViewers = 200
	// livePeriod is how often a page that moves is looked at.
	livePeriod = 2 * time.Second
	// keepAlive is how often something is sent if nothing moves.
	keepAlive = 15 * time.Second
	// stuck is how long a viewer may take no event: one whose machine sleeps keeps neither a place nor
	// what it looks at.
	stuck = 30 * time.Second
	// startedOver stands on the page below what does not count any more.
	startedOver = "The action was started over: what is above does not count."
)

// An events is a stream of server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// errCrowded is told viewers for whom there is no room, or none any more.
var errCrowded = errors.New("too many pages are open: this one stands still")

// errLeft is told viewers whose session was ended before its time, by another page of their browser.
var errLeft = errors.New("you have logged out")

// events begins a stream, if there is room for one more viewer; leave gives the room back. The context of the request
// that is returned ends with errCrowded when the room is given to another viewer, and with errLeft when he logs out.
func (s *Site) events(w http.ResponseWriter, r *http.Request) (e events, _ *http.Request, leave func(), ok bool) {
	ctx, cancel := context.WithCancelCause(r.Context())
	leavePlace, ok := s.viewers.Take(auth.CallerOf(ctx), func() { cancel(errCrowded) })
	if !ok {
		cancel(nil)
		http.Error(w, errCrowded.Error(), http.StatusServiceUnavailable)
		return events{}, nil, nil, false
	}
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	r = r.WithContext(ctx)
	watched := s.watch(r, cancel)
	return events{w, http.NewResponseController(w)}, r, func() { leavePlace(); cancel(nil); <-watched }, true
}

// watch ends a stream with errLeft if it has a session that is ended before its time. What it returns is closed when it has
// stopped, at the latest after the context of r.
func (s *Site) watch(r *http.Request, end context.CancelCauseFunc) <-chan struct{} {
	stopped := make(chan struct{})
	var who *auth.Identity
	var until time.Time
	if s.options.Login != nil {
		who, until = s.options.Login.Of(r)
	}
	if who == nil {
		close(stopped)
		return stopped
	}
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(livePeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-r.Context().Done():
				return
			}
			if who, _ := s.options.Login.Of(r); who == nil && time.Now().Before(until) {
				end(errLeft)
				return
			}
		}
	}()
	return stopped
}

// crowded reports whether the room of a viewer was given to another one, who is told so.
func (e events) crowded(r *http.Request) bool {
	if context.Cause(r.Context()) != errCrowded {
		return false
	}
	_ = e.send("gone", []byte(errCrowded.Error()))
	return true
}

// over reports whether the session of a viewer has ended. If its time is over, his page is to be loaded anew, for which he
// logs in. If he has logged out, his page is to go: loaded anew, it might log him in without a word.
func (e events) over(r *http.Request) bool {
	if context.Cause(r.Context()) == errLeft {
		_ = e.send("left", []byte(errLeft.Error()))
		return true
	}
	if !errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		return false
	}
	_ = e.send("reload", []byte("the session is over"))
	return true
}

// newlines makes all ends of lines that there are in an event stream one.
var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// send sends one event; data may have several lines, whatever ends them. Browsers pass over events
// without any.
func (e events) send(name string, data []byte) error {
	var b bytes.Buffer
	b.WriteString("event: " + name + "\n")
	for line := range strings.Lines(newlines.Replace(string(data))) {
		b.WriteString("data: " + strings.TrimSuffix(line, "\n") + "\n")
	}
	b.WriteByte('\n')
	if err := e.control.SetWriteDeadline(time.Now().Add(stuck)); err != nil {
		return err
	}
	if _, err := e.w.Write(b.Bytes()); err != nil {
		return err
	}
	return e.control.Flush()
}

// A former is the data of a page whose parts that do not move depend on its form.
type former interface{ form() string }

// A growing is the data of a page with a part that is too large to be sent whenever it changes: what is new of it is an event of its own.
type growing interface {
	grown() (event string, data []byte)
}

// follow sends what moves of a page whenever it looks different, until the viewer leaves or
// the page is no more.
func (s *Site) follow(w http.ResponseWriter, r *http.Request, name string, load loader) {
	e, r, leave, ok := s.events(w, r)
	if !ok {
		return
	}
	defer leave()
	ticker := time.NewTicker(livePeriod)
	defer ticker.Stop()
	var shown []byte
	var sent time.Time
	form := ""
	for {
		data, err := s.load(r, load)
		if e.crowded(r) || e.over(r) {
			return
		}
		if err != nil {
			_ = e.send("gone", []byte(status.Convert(err).Message()))
			return
		}
		if f, ok := data.(former); ok {
			if form != "" && form != f.form() {
				_ = e.send("reload", []byte(f.form()))
				return
			}
			form = f.form()
		}
		part, err := s.main(r, name, data)
		if err != nil {
			s.options.Logger.Error("page cannot be rendered", zap.String("page", name), zap.Error(err))
			return
		}
		switch {
		case !bytes.Equal(part, shown):
			err = e.send("main", part)
			shown, sent = part, time.Now()
		case time.Since(sent) > keepAlive:
			err = e.send("alive", nil)
			sent = time.Now()
		}
		if g, ok := data.(growing); ok && err == nil {
			if event, news := g.grown(); len(news) > 0 {
				err = e.send(event, news)
			}
		}
		if err != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			_ = e.crowded(r) || e.over(r)
			return
		}
	}
}

// output sends what a command prints while it runs.
func (s *Site) output(w http.ResponseWriter, r *http.Request) {
	name, stream := operationName(r), r.PathValue("stream")
	if s.options.Output == nil || stream != "stdout" && stream != "stderr" {
		http.NotFound(w, r)
		return
	}
	e, r, leave, ok := s.events(w, r)
	if !ok {
		return
	}
	defer leave()
	err := s.outputOfRun(r, e, names.StreamPrefix+name+"/"+stream)
	for names.IsStartedOver(err) {
		if e.send("again", []byte(startedOver)) != nil {
			return
		}
		err = s.outputOfRun(r, e, names.StreamPrefix+name+"/"+stream)
	}
	if e.crowded(r) || e.over(r) {
		return
	}
	text := "end"
	if err != nil && !errors.Is(err, io.EOF) {
		text = status.Convert(err).Message()
	}
	_ = e.send("gone", []byte(text))
}

// outputOfRun sends what one run of a command prints to a stream.
func (s *Site) outputOfRun(r *http.Request, e events, stream string) error {
	out := &outputStream{r: r, events: e}
	err := s.options.Output.Read(&bytestream.ReadRequest{ResourceName: stream}, out)
	if len(out.begun) > 0 {
		_ = e.sendText(out.begun)
	}
	return err
}

// An outputStream is the reader of one stream of output.
type outputStream struct {
	grpc.ServerStreamingServer[bytestream.ReadResponse]
	r      *http.Request
	events events
	begun  []byte // of a character whose end has not come yet
}

// Context implements grpc.ServerStream.
func (o *outputStream) Context() context.Context { return o.r.Context() }

// Send implements the stream, whose messages end anywhere.
func (o *outputStream) Send(m *bytestream.ReadResponse) error {
	data := append(o.begun, m.GetData()...)
	whole := len(data) - cutOff(data)
	o.begun = bytes.Clone(data[whole:])
	if whole == 0 {
		return nil
	}
	return o.events.sendText(data[:whole])
}

// cutOff returns how many bytes at the end of b begin a character that b does not have all of.
func cutOff(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}

// sendText sends what a command printed. What is no text is sent as U+FFFD.
func (e events) sendText(printed []byte) error {
	text, err := json.Marshal(strings.ToValidUTF8(string(printed), "\ufffd"))
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return e.send("text", text)
}
