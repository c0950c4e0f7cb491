package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// copyPiece is how much of a file is read between two looks at the context.
const copyPiece = 256 << 10

// copyTo makes the file path, with the bytes of from and what else k says. That they are
// those of another blob is ErrDamaged.
func copyTo(ctx context.Context, path string, from *os.File, k linkKey) (inode, error) {
	to, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return inode{}, err
	}
	if err = copyBlob(ctx, to, from, k.digest); err == nil {
		err = to.Chmod(os.FileMode(k.perm))
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return inode{}, err
	}
	mtime := time.Unix(k.sec, int64(k.nsec))
	if err := os.Chtimes(path, mtime, mtime); err != nil {
		return inode{}, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return inode{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return inodeOf(&st), nil
}

// copyBlob copies and hashes the blob d. What shares its blocks with the other file is read
// back, for that is what commands will read.
func copyBlob(ctx context.Context, to, from *os.File, d digest.Digest) error {
	if d.SizeBytes() == 0 {
		return nil
	}
	h := digest.NewHasher(d.Function())
	var err error
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		err = readPieces(ctx, to, d.SizeBytes(), h)
	} else {
		err = readPieces(ctx, from, d.SizeBytes(), io.MultiWriter(to, h))
	}
	if err == nil && h.Digest() != d {
		err = fmt.Errorf("blob %s: %w: its hash is %s", d, ErrDamaged, h.Digest().Hash())
	}
	return err
}

// readPieces writes the first size bytes of from to w.
func readPieces(ctx context.Context, from io.ReaderAt, size int64, w io.Writer) error {
	buf := make([]byte, min(size, copyPiece))
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n, err := from.ReadAt(buf[:min(size-at, copyPiece)], at)
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

// verify reads a copy that was last seen to be right before due, or was written to since. The error
// wraps ErrDamaged if it is wrong: no root gets it any more.
func (c *linkCache) verify(ctx context.Context, l *sharedFile, due time.Time) error {
	if !l.intact() {
		due = time.Now()
	}
	err := l.said.look(due, func() error { return l.check(ctx) })
	if errors.Is(err, ErrDamaged) {
		c.spoil(l)
		return fmt.Errorf("copy of blob %s: %w", l.key.digest, err)
	}
	return err
}

// check reads the copy.
func (l *sharedFile) check(ctx context.Context) error {
	f, err := os.Open(l.path)
	if err != nil {
		return damagedUnless(ctx, err)
	}
	defer func() { _ = f.Close() }()
	h := digest.NewHasher(l.key.digest.Function())
	if err := readPieces(ctx, f, l.key.digest.SizeBytes(), h); err != nil {
		return damagedUnless(ctx, err)
	}
	if h.Digest() != l.key.digest {
		return fmt.Errorf("%w: its hash is %s", ErrDamaged, h.Digest().Hash())
	}
	return nil
}
