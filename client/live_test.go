package client

import (
	"context"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/proto/names"
)

func TestRestOfWhatWasShown(t *testing.T) {
	for _, c := range []struct {
		shown []string
		final string
		rest  string
		whole bool
	}{
		{nil, "", "", false},
		{nil, "all", "all", false},
		{[]string{"fi", "rst\n"}, "first\nsecond\n", "second\n", false},
		{[]string{"first\n"}, "first\n", "", false},
		{[]string{"first run\n"}, "second run\n", "second run\n", true},
		{[]string{"first\n", "and more\n"}, "first\n", "first\n", true},
		{[]string{"first\n"}, "", "", true},
	} {
		var w strings.Builder
		l := NewLive(&w, nil)
		for _, s := range c.shown {
			l.show([]byte(s))
		}
		rest, whole := l.Rest([]byte(c.final))
		if w.String() != strings.Join(c.shown, "") || string(rest) != c.rest || whole != c.whole {
			t.Errorf("%q of %q: wrote %q, rest %q, whole %t", c.shown, c.final, w.String(), rest, whole)
		}
	}
}

// fakeStreams has an output stream. Each of its runs ends with an error.
type fakeStreams struct {
	bytestream.ByteStreamClient
	runs []fakeRun
}

type fakeRun struct {
	text string
	end  error
}

type fakeStream struct {
	bytestream.ByteStream_ReadClient
	fakeRun
	offset int64
}

func (f *fakeStreams) Read(
	_ context.Context, req *bytestream.ReadRequest, _ ...grpc.CallOption,
) (bytestream.ByteStream_ReadClient, error) {
	run := f.runs[0]
	f.runs = f.runs[1:]
	return &fakeStream{fakeRun: run, offset: req.GetReadOffset()}, nil
}

func (f *fakeStream) Recv() (*bytestream.ReadResponse, error) {
	if text := f.text[f.offset:]; text != "" {
		f.offset += int64(len(text))
		return &bytestream.ReadResponse{Data: []byte(text)}, nil
	}
	return nil, f.end
}

// TestStartedOver checks that output of a void run is marked as such, and that the next run's
// output is shown from the beginning.
func TestStartedOver(t *testing.T) {
	var w strings.Builder
	l := NewLive(&w, func() { w.WriteString("|") })
	streams := &fakeStreams{runs: []fakeRun{
		{"wrong, and longer", names.ErrStartedOver()}, {"", names.ErrStartedOver()}, {"right", io.EOF},
	}}
	l.read(t.Context(), streams, "stream")
	if want := "wrong, and longer||right"; w.String() != want {
		t.Errorf("shown %q, want %q", w.String(), want)
	}
	if rest, whole := l.Rest([]byte("right one")); string(rest) != " one" || whole {
		t.Errorf("the rest is %q, all of it: %t", rest, whole)
	}
}
