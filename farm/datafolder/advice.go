package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// otherFolder is the advice that always helps.
const otherFolder = "choose another folder with --data"

// An advised error says what to do.
type advised struct {
	error
	advice string
}

func (e *advised) Error() string { return fmt.Sprintf("%v (%s)", e.error, e.advice) }

func (e *advised) Unwrap() error { return e.error }

// Advised returns the error of a program that could not use its data folder with what to do about
// it.
func Advised(err error) error {
	switch {
	case err == nil || errors.As(err, new(*advised)):
		return err
	case isFull(err):
		return WithRoom(err)
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return &advised{err, fmt.Sprintf("user %d may not use it: choose a folder of this user with --data, or start this as another user", os.Geteuid())}
	}
	return &advised{err, otherFolder}
}

// WithRoom is Advised for errors of all kinds: it advises if a disk is full.
func WithRoom(err error) error {
	if !isFull(err) || errors.As(err, new(*advised)) {
		return err
	}
	return &advised{err, "make room on that disk, or " + otherFolder}
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
