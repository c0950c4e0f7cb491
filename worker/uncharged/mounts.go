package uncharged

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// FileSystems returns how many file systems without their own disk the machine has. It makes one,
// which the kernel gives the first free number, and drops it. There can be 1,048,575, and each
// takes some 10 KiB, most of which is charged to no cgroup. The caller must be root.
func FileSystems() (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("open a file system: %w", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return 0, fmt.Errorf("make a file system: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("mount a file system: %w", err)
	}
	defer func() { _ = unix.Close(mount) }()
	var st unix.Stat_t
	if err := unix.Fstat(mount, &st); err != nil {
		return 0, fmt.Errorf("look at a file system: %w", err)
	}
	return int(unix.Minor(st.Dev)), nil
}

// Mounted counts the file systems without a disk that the threads of processes have mounted, up to
// most, and only those with numbers of at most last. It reads the mounts of each namespace once. It
// stops when ctx ends.
func Mounted(ctx context.Context, pids []int, last, most int) int {
	numbers := map[int]bool{}
	for thread := range namespaces(ctx, pids) {
		for mount := range mountsIn(thread) {
			if n, ok := numberOf(mount); ok && n <= last {
				numbers[n] = true
				if bytes.Contains(mount, []byte(" - overlay ")) {
					numbers[-n] = true // an overlay has another number for its files, which no mount shows
				}
			}
			if len(numbers) >= most || ctx.Err() != nil {
				return len(numbers)
			}
		}
	}
	return len(numbers)
}

// numberOf returns the number of the file system of a line of proc_pid_mountinfo(5), which begins
// with the numbers of the mount, of its parent, and of the file system (0:NUMBER); not ok: it has a
// disk.
func numberOf(line []byte) (n int, ok bool) {
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) < 4 {
		return 0, false
	}
	minor, ok := bytes.CutPrefix(fields[2], []byte("0:"))
	n, err := strconv.Atoi(string(minor))
	return n, ok && err == nil
}
