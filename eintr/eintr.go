package eintr

import (
	"io"

	"golang.org/x/sys/unix"
)

// Ignore calls call until it returns another error than EINTR, or none.
func Ignore(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// Write writes all of p to a file, and returns how much it has written. A file system may take
// nothing without an error: that is io.ErrShortWrite, as it could be so forever.
func Write(fd int, p []byte) (written int, err error) {
	for written < len(p) {
		n, err := Ignore(func() (int, error) { return unix.Write(fd, p[written:]) })
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}
