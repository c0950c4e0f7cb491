package uncharged

import (
	"bytes"
	"context"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

// Mounted counts the file systems without a disk that the threads of processes have mounted, up to
// most, and only those with numbers of at most last. It reads the mounts of each namespace once. It
// stops when ctx ends.
func Mounted(ctx context.Context, pids []int, last, most int) int {
	m := newMounts(last, most)
	m.ofProcesses(ctx, pids)
	return min(m.n(), most)
}

// Held counts the file systems without a disk that processes hold, up to most: those that Mounted
// counts, those mounted in namespaces that the processes have open or mounted, and those of files and
// folders that they have open or mapped. It counts none twice. It stops when ctx ends: a process can
// make this take as long as it lives.
func Held(ctx context.Context, pids []int, most int) int {
	m := newMounts(maxNumber, most)
	m.ofProcesses(ctx, pids)
	m.ofNamespaces(ctx)
	for _, pid := range pids {
		if m.full(ctx) {
			break
		}
		m.opened(ctx, pid)
	}
	m.ofNamespaces(ctx)
	return min(m.n(), most)
}

// maxNumber is the highest number that a file system can have.
const maxNumber = 1<<20 - 1

// mounts are the file systems that one call has counted.
type mounts struct {
	numbers
	last, most int
	seen       map[uint64]bool  // namespaces that were looked at, by their ids, which no others will have
	wanted     map[uint64]mount // namespaces to look at, by their inodes, and what shows each
	nsfs       int              // the number of the file system of namespaces
}

// A mount is one in a namespace. No others will have their ids.
type mount struct{ namespace, id uint64 }

func newMounts(last, most int) *mounts {
	m := &mounts{numbers: newNumbers(), last: last, most: most, seen: map[uint64]bool{}, wanted: map[uint64]mount{}}
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/mnt", &st) == nil {
		m.nsfs = int(unix.Minor(st.Dev))
	}
	return m
}

// full reports whether there is no more to do.
func (m *mounts) full(ctx context.Context) bool { return m.n() >= m.most || ctx.Err() != nil }

// ofProcesses counts what is mounted in the namespaces of processes.
func (m *mounts) ofProcesses(ctx context.Context, pids []int) {
	for thread := range namespaces(ctx, pids) {
		if m.ofThread(ctx, thread); m.full(ctx) {
			return
		}
	}
}

// ofThread counts what is mounted in the namespace of a thread. A kernel before Linux 6.11 only has a
// table of what the thread can reach, and makes its lines in memory of this process: a command can
// have paths of any length.
func (m *mounts) ofThread(ctx context.Context, thread string) {
	if m.ofNamespaceAt(ctx, filepath.Join(thread, "ns/mnt")) == nil {
		return
	}
	for line := range mountsIn(thread) {
		if m.line(line); m.full(ctx) {
			return
		}
	}
}

// line counts a line of proc_pid_mountinfo(5), which begins with the numbers of the mount, of its
// parent, and of the file system (0:NUMBER).
func (m *mounts) line(line []byte) {
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) < 4 {
		return
	}
	minor, ok := bytes.CutPrefix(fields[2], []byte("0:"))
	n, err := strconv.Atoi(string(minor))
	if !ok || err != nil || n > m.last {
		return // it has a disk
	}
	m.mount(n, bytes.Contains(line, []byte(" - overlay ")))
}

// ofNamespaceAt is ofNamespace for the file of one.
func (m *mounts) ofNamespaceAt(ctx context.Context, path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return m.ofNamespace(ctx, fd)
}

// ofNamespace counts what is mounted in a namespace, once, whatever its threads have as their root. A
// kernel before Linux 6.11 does not tell.
func (m *mounts) ofNamespace(ctx context.Context, fd int) error {
	namespace, err := namespaceID(fd)
	if err != nil || m.seen[namespace] {
		return err
	}
	m.seen[namespace] = true
	return list(namespace, func(ids []uint64) bool {
		for _, id := range ids {
			if m.ofMount(mount{namespace, id}); m.full(ctx) {
				return false
			}
		}
		return true
	})
}

// ofMount counts one mount of a namespace.
func (m *mounts) ofMount(at mount) {
	var s statmount
	if s.ask(at, askFileSystem) != nil || s.major != 0 || int(s.minor) > m.last {
		return
	}
	m.mount(int(s.minor), s.magic == unix.OVERLAYFS_SUPER_MAGIC)
	if s.magic != unix.NSFS_MAGIC {
		return
	}
	if inode, ok := at.shows(); ok {
		m.wanted[inode] = at
	}
}

// shows returns the inode of the mount namespace that is mounted there. Its text is mnt:[INODE].
func (at mount) shows() (inode uint64, ok bool) {
	var s statmount
	if s.ask(at, askRoot) != nil {
		return 0, false
	}
	text, ok := bytes.CutPrefix(s.rootText(), []byte("mnt:["))
	inode, err := strconv.ParseUint(string(bytes.TrimSuffix(text, []byte("]"))), 10, 64)
	return inode, ok && err == nil
}

// ofNamespaces counts what is mounted in the wanted namespaces, and in those mounted there, and so on.
// A kernel before Linux 6.12 has no list of namespaces.
func (m *mounts) ofNamespaces(ctx context.Context) {
	for more := true; more && len(m.wanted) > 0; {
		more = false
		_ = eachNamespace(func(fd int, _ uint32) bool {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) != nil {
				return true
			}
			at, ok := m.wanted[st.Ino]
			if !ok {
				return true
			}
			delete(m.wanted, st.Ino)
			// Another one may have the inode of one that has ended, but no longer while this one is open.
			if inode, ok := at.shows(); ok && inode == st.Ino {
				more = true
				_ = m.ofNamespace(ctx, fd)
			}
			return !m.full(ctx)
		})
	}
}

// opened counts the file systems of files and folders that a process has open or mapped.
func (m *mounts) opened(ctx context.Context, pid int) {
	process := filepath.Join("/proc", strconv.Itoa(pid))
	for thread := range folder.Names(filepath.Join(process, "task")) {
		m.at(ctx, filepath.Join(thread, "cwd"))
		if m.at(ctx, filepath.Join(thread, "root")); m.full(ctx) {
			return
		}
	}
	m.mapped(ctx, process)
	for thread := range folder.Tables(pid) {
		m.atAll(ctx, filepath.Join(process, "task", strconv.Itoa(thread), "fd"))
	}
}

// mapped counts the file systems of the files that a process has mapped. Its threads share them, and
// those that have ended show none.
func (m *mounts) mapped(ctx context.Context, process string) {
	for thread := range folder.Names(filepath.Join(process, "task")) {
		if m.atAll(ctx, filepath.Join("/proc", filepath.Base(thread), "map_files")) || m.full(ctx) {
			return
		}
	}
}

// atAll counts the file systems of the files that a folder has links to, and reports whether there
// are any.
func (m *mounts) atAll(ctx context.Context, links string) (some bool) {
	for link := range folder.Names(links) {
		if m.full(ctx) {
			break
		}
		some = true
		m.at(ctx, link)
	}
	return some
}

// at counts the file system of a file. It asks for nothing but its number, which no server of a file
// system has to answer. If it is a namespace, what is mounted there counts.
func (m *mounts) at(ctx context.Context, path string) {
	var st unix.Statx_t
	const flags = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT
	if unix.Statx(unix.AT_FDCWD, path, flags, 0, &st) != nil || st.Dev_major != 0 {
		return
	}
	if int(st.Dev_minor) == m.nsfs {
		m.ofOpen(ctx, path)
		return
	}
	m.open(int(st.Dev_minor))
}

// ofOpen counts what is mounted in a namespace that is open. Another file may be open there by now,
// and to open that could wait for a command.
func (m *mounts) ofOpen(ctx context.Context, path string) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && unix.Major(st.Dev) == 0 && int(unix.Minor(st.Dev)) == m.nsfs {
		_ = m.ofNamespaceAt(ctx, filepath.Join("/proc/self/fd", strconv.Itoa(fd))) // it may be of another kind
	}
}
