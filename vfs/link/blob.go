package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// smallCopy is the size up to which a blob is held in memory while copies of it are made.
const smallCopy = 64 << 10

// A blob is the blob that copies are made of, read or opened when the first one is. One
// goroutine uses it, and closes it.
type blob struct {
	digest digest.Digest
	open   func(ctx context.Context) (*os.File, error)

	bytes []byte   // of a small blob; their hash is right
	file  *os.File // of a large one
}

// close closes the open file: the next one may be another file.
func (s *blob) close() {
	if s.file != nil {
		_ = s.file.Close() // it was only read
	}
	s.bytes, s.file = nil, nil
}

// load reads or opens the blob, unless it was. One without bytes is not asked for.
func (s *blob) load(ctx context.Context) error {
	size := s.digest.SizeBytes()
	if size == 0 || s.bytes != nil || s.file != nil {
		return nil
	}
	file, err := s.open(ctx)
	if err != nil {
		return err
	}
	st, err := file.Stat()
	if err == nil && st.Size() != size {
		err = fmt.Errorf("blob %s has %d bytes", s.digest, st.Size())
	}
	if err == nil && size > smallCopy {
		s.file = file
		return nil
	}
	if err == nil {
		err = s.readSmall(ctx, file)
	}
	return errors.Join(err, file.Close())
}

func (s *blob) readSmall(ctx context.Context, file *os.File) error {
	b := bytes.NewBuffer(make([]byte, 0, s.digest.SizeBytes()))
	if err := vouch.Read(ctx, file, s.digest.SizeBytes(), b); err != nil {
		return err
	}
	if got := digest.Of(s.digest.Function(), b.Bytes()); got != s.digest {
		return wrongBlob(s.digest, got)
	}
	s.bytes = b.Bytes()
	return nil
}

// copyTo makes the file path, with the bytes of the blob and the other attributes in k, and returns
// its inode. If the bytes do not match the digest, the error is vouch.ErrDamaged.
func (s *blob) copyTo(ctx context.Context, path string, k fileKey) (st unix.Stat_t, err error) {
	if err := s.load(ctx); err != nil {
		return st, err
	}
	// As few system calls as can be: a tree may have thousands of small files.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, k.perm&0o777)
	if err != nil {
		return st, &os.PathError{Op: "create", Path: path, Err: err}
	}
	to := os.NewFile(uintptr(fd), path)
	if s.file != nil {
		err = copyBlob(ctx, to, s.file, s.digest)
	} else if len(s.bytes) > 0 {
		_, err = to.Write(s.bytes)
	}
	if err == nil {
		st, err = dress(fd, path, k)
	}
	return st, errors.Join(err, to.Close())
}

// dress gives a new file the attributes of k, and returns its inode.
func dress(fd int, path string, k fileKey) (st unix.Stat_t, err error) {
	mtime := unix.Timespec{Sec: k.sec, Nsec: int64(k.nsec)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{mtime, mtime}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return st, &os.PathError{Op: "set times", Path: path, Err: err}
	}
	err = unix.Fstat(fd, &st)
	if err == nil && st.Mode&0o7777 != k.perm&0o777 { // the umask
		if err = unix.Fchmod(fd, k.perm&0o777); err == nil {
			err = unix.Fstat(fd, &st)
		}
	}
	if err != nil {
		return st, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st, nil
}

func wrongBlob(want, got digest.Digest) error {
	return fmt.Errorf("blob %s: %w: its hash is %s", want, vouch.ErrDamaged, got.Hash())
}

// copyBlob copies and hashes the blob d. If the copy shares its blocks with the other file, it is
// read back, because commands will read that.
func copyBlob(ctx context.Context, to, from *os.File, d digest.Digest) error {
	h := digest.NewHasher(d.Function())
	var err error
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		err = vouch.Read(ctx, to, d.SizeBytes(), h)
	} else {
		err = vouch.Read(ctx, from, d.SizeBytes(), io.MultiWriter(to, h))
	}
	if err == nil && h.Digest() != d {
		err = wrongBlob(d, h.Digest())
	}
	return err
}
