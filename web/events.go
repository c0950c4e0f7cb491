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
	// stuck is how long a viewer may take no event: one whose machine sleeps keeps neither its
	// place nor its data.
	stuck = 30 * time.Second
)

// An events is a stream of server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	yield   func() // ends the stream with errCrowded
}

// errCrowded is for viewers for which there is no room, or no longer.
var errCrowded = errors.New("too many pages are open: this one stands still")

// errLeft is for viewers whose session was ended early, by another page of their browser.
var errLeft = errors.New("you have logged out")

// crowded reports whether another viewer got the place of a viewer, and tells it.
func (e events) crowded(r *http.Request) bool {
	if context.Cause(r.Context()) != errCrowded {
		return false
	}
	_ = e.send("gone", []byte(errCrowded.Error()))
	return true
}

// over reports whether the session of a viewer has ended. If it has expired, the viewer's page must
// be loaded again, which leads to the log-in. If the user has logged out, the page must go: loaded
// again, it might log the user in silently.
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

// send sends one event; data may have several lines, with any line ends. Browsers skip events
// without data.
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

// sendText sends output. Invalid text is sent as U+FFFD.
func (e events) sendText(printed []byte) error {
	text, err := json.Marshal(strings.ToValidUTF8(string(printed), "\ufffd"))
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return e.send("text", text)
}
