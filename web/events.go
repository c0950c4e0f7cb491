package web

import (
	"bufio"
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
	// stuck is the timeout of sending one event. After it, a viewer whose machine sleeps loses its
	// place and its data.
	stuck = 30 * time.Second
)

// An events is a stream of server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	yield   func() // ends the stream with errCrowded
}

// errCrowded ends the streams of viewers for which there is no room.
var errCrowded = errors.New("too many pages are open: this one stands still")

// errLeft ends the streams of a session that another page of the same browser has ended.
var errLeft = errors.New("you have logged out")

// crowded reports whether the viewer lost its place to another one, and if so tells the viewer.
func (e events) crowded(r *http.Request) bool {
	if context.Cause(r.Context()) != errCrowded {
		return false
	}
	_ = e.send("gone", []byte(errCrowded.Error()))
	return true
}

// over reports whether the viewer's session has ended. If the session expired, it makes the browser
// reload the page, which leads to the log-in. If the user logged out, it makes the browser leave
// the page: a reload might log the user in again silently.
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

// to returns the same stream with another writer.
func (e events) to(w http.ResponseWriter) events {
	return events{w, http.NewResponseController(w), e.yield}
}

// send sends one event without copying data. The data may have several lines, with any line ends.
// Browsers skip events without data.
func (e events) send(name string, data []byte) error {
	if err := e.control.SetWriteDeadline(time.Now().Add(stuck)); err != nil {
		return err
	}
	out := bufio.NewWriter(e.w) // a bufio.Writer keeps the first error
	_, _ = out.WriteString("event: " + name + "\n")
	for len(data) > 0 {
		var line []byte
		line, data = cutLine(data)
		_, _ = out.WriteString("data: ")
		_, _ = out.Write(line)
		_ = out.WriteByte('\n')
	}
	_ = out.WriteByte('\n')
	if err := out.Flush(); err != nil {
		return err
	}
	return e.control.Flush()
}

// cutLine returns the first line of data and the rest after its line end. It knows every line end
// of event streams.
func cutLine(data []byte) (line, rest []byte) {
	i := bytes.IndexAny(data, "\r\n")
	if i < 0 {
		return data, nil
	}
	line, rest = data[:i], data[i+1:]
	if data[i] == '\r' && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return line, rest
}

// sendText sends the output of a command. Invalid UTF-8 becomes U+FFFD.
func (e events) sendText(printed []byte) error {
	text, err := json.Marshal(strings.ToValidUTF8(string(printed), "\ufffd"))
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return e.send("text", text)
}
