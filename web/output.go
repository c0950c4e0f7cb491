package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/names"
)

// startedOver appears below the output of a run that no longer counts.
const startedOver = "The action was started over: the output above does not count."

// An outputPages shows the output of running commands.
type outputPages struct {
	*display
	from bytestream.ByteStreamServer // nil: output of running commands is not available
}

// serve sends the output of a running command.
func (p *outputPages) serve(w http.ResponseWriter, r *http.Request) {
	name, stream := operationName(r), r.PathValue("stream")
	if p.from == nil || stream != "stdout" && stream != "stderr" {
		http.NotFound(w, r)
		return
	}
	e, r, leave, ok := p.events(w, r)
	if !ok {
		return
	}
	defer leave()
	err := p.ofRun(r, e, names.StreamPrefix+name+"/"+stream)
	for names.IsStartedOver(err) {
		if e.send("again", []byte(startedOver)) != nil {
			return
		}
		err = p.ofRun(r, e, names.StreamPrefix+name+"/"+stream)
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

// ofRun sends the output of one run of a command to a stream of events.
func (p *outputPages) ofRun(r *http.Request, e events, stream string) error {
	out := &outputStream{r: r, events: e}
	err := p.from.Read(&bytestream.ReadRequest{ResourceName: stream}, out)
	if len(out.begun) > 0 {
		_ = e.sendText(out.begun)
	}
	return err
}

// An outputStream receives one stream of output.
type outputStream struct {
	grpc.ServerStreamingServer[bytestream.ReadResponse]
	r      *http.Request
	events events
	begun  []byte // an incomplete character
}

// Context implements grpc.ServerStream.
func (o *outputStream) Context() context.Context { return o.r.Context() }

// Send implements bytestream.ByteStream_ReadServer. A message may end within a character.
func (o *outputStream) Send(m *bytestream.ReadResponse) error {
	data := append(o.begun, m.GetData()...)
	whole := len(data) - cutOff(data)
	o.begun = bytes.Clone(data[whole:])
	if whole == 0 {
		return nil
	}
	return o.events.sendText(data[:whole])
}

// cutOff returns the length of the incomplete character at the end of b.
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
