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

// A Live receives the output of a running command on one stream. It is a hint: the result has the
// complete output, and Rest returns the part that was not shown.
type Live struct {
	w     io.Writer
	again func()
	shown int64
	sum   hash.Hash // of the shown output
}

// NewLive returns a Live that writes to w, which must not block for long. It ignores errors of w.
// When an action starts again, it calls again and then writes the output of the next run from the
// beginning; earlier output is void.
func NewLive(w io.Writer, again func()) *Live { return &Live{w: w, again: again, sum: sha256.New()} }

func (l *Live) show(b []byte) {
	_, _ = l.w.Write(b)
	_, _ = l.sum.Write(b)
	l.shown += int64(len(b))
}

// startOver forgets the shown output.
func (l *Live) startOver() {
	l.sum.Reset()
	l.shown = 0
	l.again()
}

// Rest returns the part of the complete output that was not shown. If the shown output is not the
// beginning of the complete one, whole is true and Rest returns the complete output. This happens,
// for example, if an action ran again without a notice in time. Execute must have returned.
func (l *Live) Rest(final []byte) (rest []byte, whole bool) {
	if int64(len(final)) >= l.shown {
		if sum := sha256.Sum256(final[:l.shown]); bytes.Equal(sum[:], l.sum.Sum(nil)) {
			return final[l.shown:], false
		}
	}
	return final, true
}

// views reads both output streams of an operation.
type views struct {
	sync.WaitGroup
	begun bool
}

// begin starts reading the streams that m names, until ctx or the streams end. Later calls do
// nothing.
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

// read shows a stream from its present position, and then the streams of further runs. It stops at
// any other end of the stream; the result has the rest.
func (l *Live) read(ctx context.Context, from bytestream.ByteStreamClient, name string) {
	for names.IsStartedOver(l.readRun(ctx, from, name)) {
		l.startOver()
	}
}

// readRun shows the stream of one run until it ends.
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
