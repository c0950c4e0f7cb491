package frame

import (
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Touch gives the folders that are no inputs the times of folders that are made now, and those that they
// are in the time of folders in which one is made. It opens none of them. No process may use f yet.
func (f *Frame) Touch(isInput func(at string) bool) error {
	top, err := unix.Open(f.Path(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: f.Path(), Err: err}
	}
	defer func() { _ = unix.Close(top) }()
	if err := touch(top, ".", unix.UTIME_NOW); err != nil {
		return err
	}
	touched := map[string]bool{".": true}
	for _, at := range f.inside {
		if isInput(at) {
			continue
		}
		touched[at] = true
		if err := touch(top, at, unix.UTIME_NOW); err != nil {
			return err
		}
		in := path.Dir(at)
		if touched[in] {
			continue
		}
		touched[in] = true
		if err := touch(top, in, unix.UTIME_OMIT); err != nil {
			return err
		}
	}
	return f.top.Renew()
}

// touch sets the time of the last change of a folder below the open folder top to now, and that of the
// last access as told.
func touch(top int, at string, access int64) error {
	times := []unix.Timespec{{Nsec: access}, {Nsec: unix.UTIME_NOW}}
	if err := unix.UtimesNanoAt(top, at, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "set times of", Path: at, Err: err}
	}
	return nil
}
