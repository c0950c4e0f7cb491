package printed

import (
	"context"
	"fmt"
	"html/template"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/stored"
	"github.com/forerunner-build/forerunner/web/text"
)

// maxPrinted limits the output of a command on its page.
const maxPrinted = 1 << 20

// A Text is the output of a command on one stream.
type Text struct {
	Title string
	Text  string
	Size  int64
	// HTML is the output as a terminal would show it, for pages of completed operations. Path is
	// the URL of the whole output.
	HTML template.HTML
	Path string
	// Problem says why Text is incomplete.
	Problem string
}

const (
	// renderings is the number of large outputs that are rendered at once: a megabyte of colours
	// takes seconds of CPU time.
	renderings = 1
	// quicklyRendered is the maximum size of an output that needs no turn.
	quicklyRendered = 32 << 10
)

// A Reader reads the output of commands.
type Reader struct {
	blobs func(instance string, fn digest.Function) stored.Blobs
	turns *intake.Turns // for rendering
}

// NewReader returns a Reader. Blobs returns the storage of an instance name.
func NewReader(blobs func(instance string, fn digest.Function) stored.Blobs) *Reader {
	return &Reader{blobs: blobs, turns: intake.NewTurns(renderings)}
}

// HTML renders output as a terminal would. Callers take turns with large outputs. If ctx ends
// before its turn, a caller gets the output without colours.
func (s *Reader) HTML(ctx context.Context, text string) template.HTML {
	if len(text) > quicklyRendered {
		leave, err := s.turns.Take(ctx, auth.CallerOf(ctx))
		if err != nil {
			return plain(text)
		}
		defer leave()
	}
	return rendered(text)
}

// Of returns the output in the result of an operation.
func (s *Reader) Of(ctx context.Context, op *admin.Operation, result *repb.ActionResult) []Text {
	if result == nil {
		return nil
	}
	return []Text{
		s.Stream(ctx, op, Text{Title: "Standard output"}, result.GetStdoutRaw(), result.GetStdoutDigest()),
		s.Stream(ctx, op, Text{Title: "Standard error"}, result.GetStderrRaw(), result.GetStderrDigest()),
	}
}

// Stream completes p with the content of a stream: of blob, or raw if blob is nil.
func (s *Reader) Stream(ctx context.Context, op *admin.Operation, p Text, raw []byte, blob *repb.Digest) Text {
	if p.Size = int64(len(raw)); p.Size == 0 {
		p.Size = blob.GetSizeBytes()
	}
	switch {
	case p.Size == 0:
		p.Problem = "Nothing."
	case p.Size > maxPrinted:
		p.Problem = fmt.Sprintf("The output exceeds %s: the client has it, and so does the storage as %s/%d.",
			text.Bytes(maxPrinted), blob.GetHash(), p.Size)
	case len(raw) == 0:
		var err error
		if raw, err = s.blob(ctx, op, blob); err != nil {
			p.Problem = "The storage does not have it."
		}
	}
	if p.Size <= maxPrinted {
		p.Text = strings.ToValidUTF8(string(raw), "\ufffd")
	}
	return p
}

// blob reads a blob from the storage of an operation's instance name.
func (s *Reader) blob(ctx context.Context, op *admin.Operation, m *repb.Digest) ([]byte, error) {
	fn, err := stored.Function(op.GetDigestFunction())
	if err != nil {
		return nil, err
	}
	d, err := digest.FromProto(fn, m)
	if err != nil {
		return nil, err
	}
	return s.blobs(op.GetInstanceName(), fn).Read(ctx, d)
}
