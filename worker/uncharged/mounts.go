package uncharged

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// FileSystems returns how many file systems without a disk of their own the machine has: it makes
// one, which the kernel gives the first number that is free, and lets go of it. There can be
// 1,048,575, and each takes some 10 KiB, most of which no cgroup is charged for. The caller has to
// be root.
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

// Mounts counts the mounts that the threads of processes see, up to most, in each namespace once.
func Mounts(pids []int, most int) (n int) {
	seen := map[string]bool{}
	for _, pid := range pids {
		threads := filepath.Join("/proc", strconv.Itoa(pid), "task")
		names, err := os.ReadDir(threads)
		if err != nil {
			continue // it has ended
		}
		for _, name := range names {
			thread := filepath.Join(threads, name.Name())
			namespace, err := os.Readlink(filepath.Join(thread, "ns/mnt"))
			if err != nil || seen[namespace] {
				continue
			}
			seen[namespace] = true
			if n += mountsOf(filepath.Join(thread, "mountinfo"), most-n); n >= most {
				return n
			}
		}
	}
	return n
}

// mountsOf counts the lines of a table of mounts, however long they are.
func mountsOf(table string, most int) (n int) {
	f, err := os.Open(table)
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewReader(f); n < most; {
		switch _, err := lines.ReadSlice('\n'); {
		case err == nil:
			n++
		case !errors.Is(err, bufio.ErrBufferFull):
			return n
		}
	}
	return n
}
