package uncharged

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mostBridged free numbers below others are not taken for their end.
const mostBridged = 64

// FileSystems returns how many file systems without their own disk the machine has, and the highest
// number that it knows one of them has. It makes one, which the kernel gives the first free number,
// and drops it. If that number is below highest, that of the last call, there are free numbers in
// between, and it makes up to 64 more to see those above. There can be 1,048,575, and each takes some
// 10 KiB, most of which is charged to no cgroup. The caller must be root.
func FileSystems(highest int) (n, nowHighest int, err error) {
	first, number, err := makeNumbered()
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = unix.Close(first) }()
	free := min(highest-number, mostBridged)
	if free <= 0 {
		return number, number, nil
	}
	for range free {
		fs, err := makeFileSystem()
		if err != nil {
			return 0, 0, err
		}
		defer func() { _ = unix.Close(fs) }()
	}
	last, number, err := makeNumbered()
	if err != nil {
		return 0, 0, err
	}
	_ = unix.Close(last)
	return number - free - 1, number - 1, nil
}

// makeFileSystem returns a new file system.
func makeFileSystem() (fd int, err error) {
	if fd, err = unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC); err != nil {
		return 0, fmt.Errorf("open a file system: %w", err)
	}
	if err = unix.FsconfigCreate(fd); err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("make a file system: %w", err)
	}
	return fd, nil
}

// makeNumbered returns a new file system, and its number.
func makeNumbered() (fd, number int, err error) {
	fs, err := makeFileSystem()
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = unix.Close(fs) }()
	if fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0); err != nil {
		return 0, 0, fmt.Errorf("mount a file system: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return 0, 0, fmt.Errorf("look at a file system: %w", err)
	}
	return fd, int(unix.Minor(st.Dev)), nil
}
