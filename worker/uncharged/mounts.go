package uncharged

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
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

// Mounted counts the file systems without a disk that the threads of processes see mounted, up to
// most, and only those with numbers of at most last. It reads the mounts of each namespace once.
// It looks at nothing more when ctx ends.
func Mounted(ctx context.Context, pids []int, last, most int) int {
	m := mounted{ctx: ctx, last: last, most: most, numbers: map[int]bool{}}
	seen := map[string]bool{}
	for _, pid := range pids {
		for thread := range folder.Names(filepath.Join("/proc", strconv.Itoa(pid), "task")) {
			if ctx.Err() != nil {
				return len(m.numbers)
			}
			namespace, err := os.Readlink(filepath.Join(thread, "ns/mnt"))
			if err != nil || seen[namespace] {
				continue
			}
			seen[namespace] = true
			if m.read(filepath.Join(thread, "mountinfo")); len(m.numbers) >= most {
				return len(m.numbers)
			}
		}
	}
	return len(m.numbers)
}

// mounted collects the numbers of file systems.
type mounted struct {
	ctx        context.Context // of one call of Mounted
	last, most int
	numbers    map[int]bool
}

// read adds those of a table of mounts, however long its lines are.
func (m *mounted) read(table string) {
	f, err := os.Open(table)
	if err != nil {
		return // the thread has ended
	}
	defer f.Close()
	begins := true
	for lines := bufio.NewReader(f); len(m.numbers) < m.most && m.ctx.Err() == nil; {
		text, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		if begins {
			m.add(text)
		}
		begins = err == nil
	}
}

// add adds that of a line of proc_pid_mountinfo(5), which begins with the numbers of the mount, of
// its parent, and of the file system (0:NUMBER).
func (m *mounted) add(line []byte) {
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) < 4 {
		return
	}
	minor, ok := bytes.CutPrefix(fields[2], []byte("0:"))
	if n, err := strconv.Atoi(string(minor)); ok && err == nil && n <= m.last {
		m.numbers[n] = true
	}
}
