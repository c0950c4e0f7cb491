package vouch

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// piece is how much of a file is read between two looks at the context.
const piece = 256 << 10

// Read writes the first size bytes of from to w, and stops when ctx ends. If there are fewer bytes,
// the error is ErrDamaged.
func Read(ctx context.Context, from io.ReaderAt, size int64, w io.Writer) error {
	buf := make([]byte, min(size, piece))
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n, err := from.ReadAt(buf[:min(size-at, piece)], at)
		if n == 0 && errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: it has %d bytes instead of %d", ErrDamaged, at, size)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}
