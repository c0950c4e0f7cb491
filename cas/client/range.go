package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// rangeBufferBytes is the size of the pieces that FetchFrom writes.
const rangeBufferBytes = 128 << 10

// FetchFrom implements RangeFetcher. Like Fetch it goes on where a stream broke.
func (c *Client) FetchFrom(ctx context.Context, d digest.Digest, offset int64, w io.Writer) error {
	if err := c.fetchFrom(ctx, d, offset, w); err != nil {
		return fmt.Errorf("fetch blob %s from %d on: %w", d, offset, err)
	}
	return nil
}

func (c *Client) fetchFrom(ctx context.Context, d digest.Digest, offset int64, w io.Writer) error {
	if _, err := c.unique([]digest.Digest{d}); err != nil {
		return err
	}
	if offset < 0 || offset > d.SizeBytes() {
		return errors.New("the offset is outside the blob")
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
	r := newBlobReader(ctx, c, known, d, offset)
	defer r.close()
	buf := make([]byte, min(rangeBufferBytes, d.SizeBytes()-offset+1))
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
		case err != nil && !isConnectionError(ctx, err):
			return blobError(err)
		case err != nil:
			return err
		}
	}
}
