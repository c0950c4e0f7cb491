package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"sync"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"

	"github.com/forerunner-build/forerunner/proto/names"
)

// A Live is shown what a command prints to one of its streams while it runs. It
// is a hint: what was really printed is in the result, and Rest compares.
type Live struct {
	w     io.Writer
	again func()
	shown int64
	sum   hash.Hash // of what was shown
}

// NewLive returns a Live that writes to w, which must not block for long. Errors
// of w are ignored. When an action is started over, again is called, and w gets what the next run prints,
// from its begin on; what w got before does not count.
func NewLive(w io.Writer, again func()) *Live { return &Live{w: w, again: again, sum: sha256.New()} }

func (l *Live) show(b []byte) {
	_, _ = l.w.Write(b)
	_, _ = l.sum.Write(b)
	l.shown += int64(len(b))
}

// startOver forgets what was shown.
func (l *Live) startOver() {
	l.sum.Reset()
	l.shown = 0
	l.again()
}

// Rest returns what of all that was printed has not been shown. whole: what was
// shown is not the begin of it, as when an action was run again and nobody said so in time; then it is
// all of it. Execute must have returned.
func (l *Live) Rest(final []byte) (rest []byte, whole bool) {
	if int64(len(final)) >= l.shown {
		if sum := sha256.Sum256(final[:l.shown]); bytes.Equal(sum[:], l.sum.Sum(nil)) {
			return final[l.shown:], false
		}
	}
	return final, true
}

// Views read both streams of an operation.
type views struct {
	sync.WaitGroup
	begun bool
}

// begin starts to read, once, what m names, until ctx ends or the streams do.
func (v *views) begin(ctx context.Context, x *execution, m *repb.ExecuteOperationMetadata) {
	if v.begun || m.GetStage() != repb.ExecutionStage_EXECUTING {
		return
	}
	v.begun = true
	for name, l := range map[string]*Live{m.GetStdoutStreamName(): x.req.Stdout, m.GetStderrStreamName(): x.req.Stderr} {
		if name != "" && l != nil {
			v.Go(func() { l.read(ctx, x.streams, name) })
		}
	}
}

// read shows a stream from where it is on, and after it those of further runs. Whatever else ends it, the result
// has the rest.
func (l *Live) read(ctx context.Context, from bytestream.ByteStreamClient, name string) {
	for names.IsStartedOver(l.readRun(ctx, from, name)) {
		l.startOver()
	}
}

// readRun shows the stream of one run to its end.
func (l *Live) readRun(ctx context.Context, from bytestream.ByteStreamClient, name string) error {
	stream, err := from.Read(ctx, &bytestream.ReadRequest{ResourceName: name, ReadOffset: l.shown})
	if err != nil {
		return err
	}
	for {
		chunk, err := stream.Recv()
		if err != nil {
			return err
		}
		l.show(chunk.GetData())
	}
}
