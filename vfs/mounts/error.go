package mounts

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// An Error names the mount that failed, or its missing requirement.
type Error struct {
	What string // such as "overlay"
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("mount %s: %v", e.What, e.Err) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// RemoveEmpty removes an empty folder, if it exists. Foreign files in it stay.
func RemoveEmpty(dir string) error {
	err := unix.Rmdir(dir)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) {
		return &os.PathError{Op: "remove", Path: dir, Err: err}
	}
	return nil
}
