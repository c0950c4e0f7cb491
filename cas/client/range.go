package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// rangeBufferBytes is the size of the pieces that FetchRange writes.
const rangeBufferBytes = 128 << 10

// refusalAge is how long a Client sends no read_limit to a server that has refused it.
const refusalAge = 10 * time.Minute

// A refusal remembers that the server refuses read_limit, which saves a round trip for each part.
type refusal struct{ at atomic.Pointer[time.Time] }

// note notes that the server refused just now.
func (r *refusal) note() {
	now := time.Now()
	r.at.Store(&now)
}

// remembered reports whether the server refused within refusalAge.
func (r *refusal) remembered() bool {
	at := r.at.Load()
	return at != nil && time.Since(*at) < refusalAge
}

// FetchRange implements RangeFetcher. Like Fetch it resumes a broken stream. If a server does not
// accept read_limit, it reads the blob from the part on, and aborts the stream after it.
func (c *Client) FetchRange(ctx context.Context, d digest.Digest, part span.Span, w io.Writer) error {
	if err := c.fetchRange(ctx, d, part, w); err != nil {
		return fmt.Errorf("fetch bytes %d to %d of blob %s: %w", part.From, part.To, d, err)
	}
	return nil
}

func (c *Client) fetchRange(ctx context.Context, d digest.Digest, part span.Span, w io.Writer) error {
	if _, err := c.unique([]digest.Digest{d}); err != nil {
		return err
	}
	if part.From < 0 || part.From > part.To || part.To > d.SizeBytes() {
		return errors.New("they are not all inside the blob")
	}
	known, err := c.limits(ctx)
	if err != nil {
		return err
	}
	release, err := c.downloadSlot(ctx)
	if err != nil {
		return err
	}
	defer release()
	if c.behind {
		if _, err := w.Write(nil); err != nil {
			return err
		}
	}
	r := newBlobReader(ctx, c, known, d, part)
	defer r.close()
	// With one byte more the last read sees the end.
	buf := make([]byte, min(rangeBufferBytes-1, part.To-part.From)+1)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case status.Code(err) == codes.NotFound:
			return &cas.MissingError{Digests: []digest.Digest{d}}
		case err != nil:
			return err
		}
	}
}
