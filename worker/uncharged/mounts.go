package uncharged

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

// belowMount is a guess at how many mounts are below one that is mounted nowhere.
const belowMount = 64

// mostBridged free numbers below others are not taken for their end.
const mostBridged = 64

// FileSystems returns how many file systems without their own disk the machine has, and the highest
// number that it knows one of them has. It makes one, which the kernel gives the first free number,
// and drops it. If that number is below highest, that of the last call, there are free numbers in
// between, and it makes more. There can be 1,048,575, and each takes some 10 KiB, most of which is
// charged to no cgroup. The caller must be root.
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

// A Holder is somebody who has mounted file systems.
type Holder struct {
	Processes []int
	// Owns tells whose mount namespaces are the holder's, even if no process is in them: those below
	// user namespaces that the user made. nil: only namespaces with a process are.
	Owns func(user uint32) bool
	// Files includes file systems of which processes only have files or folders open or mapped. A
	// process can make that look take as long as it lives.
	Files bool
}

// Mounted counts the file systems without a disk that a holder has, up to most. It stops when ctx
// ends.
func Mounted(ctx context.Context, h Holder, most int) int {
	c := counted{ctx: ctx, most: most, numbers: map[int]bool{}}
	c.all(h)
	return len(c.numbers)
}

// PerhapsMounted estimates how many file systems a holder has, with those that Mounted does not see:
// each layer of an overlay may be one, and each descriptor that waits in a socket. Some may be below
// each mount that is open.
func PerhapsMounted(ctx context.Context, h Holder) int {
	c := counted{ctx: ctx, most: math.MaxInt32, numbers: map[int]bool{}, guesses: true}
	c.all(h)
	return len(c.numbers) + c.unseen
}

// counted are the numbers of file systems that Mounted has seen.
type counted struct {
	ctx     context.Context // of one call of Mounted
	most    int
	numbers map[int]bool
	guesses bool // unseen is wanted
	unseen  int
}

// all counts those of a holder.
func (c *counted) all(h Holder) {
	for thread := range namespaces(c.ctx, h.Processes) {
		if c.namespaceOf(thread); c.full() {
			return
		}
	}
	if h.Owns != nil {
		c.owned(h.Owns)
	}
	for _, pid := range h.Processes {
		if !h.Files || c.full() {
			return
		}
		c.opened(pid)
	}
}

// full reports whether there is no more to do.
func (c *counted) full() bool { return len(c.numbers) >= c.most || c.ctx.Err() != nil }

// add counts a file system.
func (c *counted) add(number int, overlay bool) {
	if c.numbers[number] = true; overlay {
		c.numbers[-number] = true // an overlay has another number for its files, which no mount shows
	}
}

// namespaceOf counts what is mounted in the namespace of a thread. Where the kernel cannot list
// that, it counts what the thread can reach, which is less after chroot(2).
func (c *counted) namespaceOf(thread string) {
	if fd, err := unix.Open(filepath.Join(thread, "ns/mnt"), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		defer func() { _ = unix.Close(fd) }()
		if c.namespace(fd) == nil {
			return
		}
	}
	for mount := range mountsIn(thread) {
		if n, ok := numberOf(mount); ok {
			c.add(n, bytes.Contains(mount, []byte(" - overlay ")))
		}
		if c.full() {
			return
		}
	}
}

// namespace counts what is mounted in a namespace, whatever its threads have as their root.
func (c *counted) namespace(fd int) error {
	var m statmount
	return list(fd, func(namespace uint64, mounts []uint64) bool {
		for _, mount := range mounts {
			if m.ask(namespace, mount, askFileSystem) == nil && m.major == 0 {
				c.add(int(m.minor), m.magic == unix.OVERLAYFS_SUPER_MAGIC)
				if c.guesses && m.magic == unix.OVERLAYFS_SUPER_MAGIC && m.ask(namespace, mount, askOptions) == nil {
					c.unseen += m.layers()
				}
			}
			if c.full() {
				return false
			}
		}
		return true
	})
}

// owned counts what is mounted in namespaces of users, also in those that only a descriptor or a
// mount holds. A kernel before Linux 6.12 does not know them.
func (c *counted) owned(owns func(user uint32) bool) {
	_ = eachNamespace(func(fd int, _ uint32) bool {
		if user, ok := ownerOf(fd); ok && owns(user) {
			_ = c.namespace(fd) // it can have ended
		}
		return !c.full()
	})
}

// opened counts the file systems of files and folders that a process has open or mapped.
func (c *counted) opened(pid int) {
	process := filepath.Join("/proc", strconv.Itoa(pid))
	c.atAll(filepath.Join(process, "map_files"))
	for thread := range folder.Names(filepath.Join(process, "task")) {
		c.at(filepath.Join(thread, "cwd"))
		if c.at(filepath.Join(thread, "root")); c.full() {
			return
		}
	}
	for thread := range folder.Tables(pid) {
		task := filepath.Join(process, "task", strconv.Itoa(thread))
		c.atAll(filepath.Join(task, "fd"))
		if c.guesses {
			c.waiting(filepath.Join(task, "fdinfo"))
		}
	}
}

// atAll counts the file systems of the files that a folder has links to.
func (c *counted) atAll(links string) {
	for link := range folder.Names(links) {
		if c.full() {
			return
		}
		c.at(link)
	}
}

// at counts the file system of a file. It asks for nothing but its number, which no server of a
// file system has to answer.
func (c *counted) at(path string) {
	var st unix.Statx_t
	const flags = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT
	if unix.Statx(unix.AT_FDCWD, path, flags, 0, &st) != nil || st.Dev_major != 0 {
		return
	}
	c.add(int(st.Dev_minor), false)
	if c.guesses && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		c.unseen += belowMount
	}
}

// waiting adds the descriptors that wait in the sockets of a table of open files, of which the
// kernel has told the number since Linux 5.6.
func (c *counted) waiting(descriptors string) {
	for path := range folder.Names(descriptors) {
		if c.full() {
			return
		}
		text, _ := os.ReadFile(path) // it may be closed
		if _, number, ok := bytes.Cut(text, []byte("\nscm_fds:")); ok {
			number, _, _ = bytes.Cut(number, []byte("\n"))
			n, _ := strconv.Atoi(string(bytes.TrimSpace(number)))
			c.unseen += n
		}
	}
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
