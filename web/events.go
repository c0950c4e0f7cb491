package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	eventStream = "text/event-stream"
	// stuck is how long a viewer may take no event: one whose machine sleeps keeps neither a place nor
	// what it looks at.
	stuck = 30 * time.Second
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

// sendText sends what a command printed. What is no text is sent as U+FFFD.
func (e events) sendText(printed []byte) error {
	text, err := json.Marshal(strings.ToValidUTF8(string(printed), "\ufffd"))
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return e.send("text", text)
}
