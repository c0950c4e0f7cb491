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
	// The namespaces by their inodes: those to look at, of which some may be of other kinds, and those
	// that were looked at.
	wanted, seen map[uint64]bool
	nsfs         int // the number of the file system of namespaces
}

func newMounts(last, most int) *mounts {
	m := &mounts{numbers: newNumbers(), last: last, most: most, wanted: map[uint64]bool{}, seen: map[uint64]bool{}}
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

// ofThread counts what is mounted in the namespace of a thread. The table of mounts lacks those that
// the thread cannot reach after chroot(2), but a look at each mount waits for those who mount.
func (m *mounts) ofThread(ctx context.Context, thread string) {
	shown := 0
	for line := range mountsIn(thread) {
		shown++
		if m.line(line); m.full(ctx) {
			return
		}
	}
	namespace := filepath.Join(thread, "ns/mnt")
	var st unix.Stat_t
	if unix.Stat(namespace, &st) == nil {
		m.see(st.Ino)
	}
	if n, err := listed(namespace, shown+1); err != nil || n <= shown {
		return
	}
	if fd, err := unix.Open(namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		m.ofNamespace(ctx, fd)
		_ = unix.Close(fd)
	}
}

// line counts a line of proc_pid_mountinfo(5), which begins with the numbers of the mount, of its
// parent, and of the file system (0:NUMBER), and what of that is mounted (for a namespace mnt:[INODE]).
func (m *mounts) line(line []byte) {
	fields := bytes.SplitN(line, []byte(" "), 5)
	if len(fields) < 5 {
		return
	}
	minor, ok := bytes.CutPrefix(fields[2], []byte("0:"))
	n, err := strconv.Atoi(string(minor))
	if !ok || err != nil || n > m.last {
		return // it has a disk
	}
	m.mount(n, bytes.Contains(line, []byte(" - overlay ")))
	m.wantMounted(fields[3])
}

// ofNamespace counts what is mounted in a namespace, whatever its threads have as their root. A kernel
// before Linux 6.11 does not tell.
func (m *mounts) ofNamespace(ctx context.Context, fd int) {
	_ = list(fd, func(namespace uint64, ids []uint64) bool {
		for _, id := range ids {
			if m.ofMount(namespace, id); m.full(ctx) {
				return false
			}
		}
		return true
	})
}

// ofMount counts one mount of a namespace.
func (m *mounts) ofMount(namespace, id uint64) {
	var s statmount
	if s.ask(namespace, id, askFileSystem) != nil || s.major != 0 || int(s.minor) > m.last {
		return
	}
	m.mount(int(s.minor), s.magic == unix.OVERLAYFS_SUPER_MAGIC)
	if s.magic == unix.NSFS_MAGIC && s.ask(namespace, id, askRoot) == nil {
		m.wantMounted(s.rootText())
	}
}

// ofNamespaces counts what is mounted in the wanted namespaces, and in those mounted there, and so on.
// A kernel before Linux 6.12 has no list of namespaces.
func (m *mounts) ofNamespaces(ctx context.Context) {
	for more := true; more && len(m.wanted) > 0; {
		more = false
		_ = eachNamespace(func(fd int, _ uint32) bool {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil && m.wanted[st.Ino] {
				more = true
				m.see(st.Ino)
				m.ofNamespace(ctx, fd)
			}
			return !m.full(ctx)
		})
	}
}

// see notes that a namespace is looked at.
func (m *mounts) see(inode uint64) {
	m.seen[inode] = true
	delete(m.wanted, inode)
}

// want has a namespace looked at, once.
func (m *mounts) want(inode uint64) {
	if !m.seen[inode] {
		m.wanted[inode] = true
	}
}

// wantMounted has a namespace looked at if it is what is mounted.
func (m *mounts) wantMounted(root []byte) {
	if text, ok := bytes.CutPrefix(root, []byte("mnt:[")); ok {
		if inode, err := strconv.ParseUint(string(bytes.TrimSuffix(text, []byte("]"))), 10, 64); err == nil {
			m.want(inode)
		}
	}
}

// opened counts the file systems of files and folders that a process has open or mapped.
func (m *mounts) opened(ctx context.Context, pid int) {
	process := filepath.Join("/proc", strconv.Itoa(pid))
	m.atAll(ctx, filepath.Join(process, "map_files"))
	for thread := range folder.Names(filepath.Join(process, "task")) {
		m.at(filepath.Join(thread, "cwd"))
		if m.at(filepath.Join(thread, "root")); m.full(ctx) {
			return
		}
	}
	for thread := range folder.Tables(pid) {
		m.atAll(ctx, filepath.Join(process, "task", strconv.Itoa(thread), "fd"))
	}
}

// atAll counts the file systems of the files that a folder has links to.
func (m *mounts) atAll(ctx context.Context, links string) {
	for link := range folder.Names(links) {
		if m.full(ctx) {
			return
		}
		m.at(link)
	}
}

// at counts the file system of a file. It asks for nothing but its number, which no server of a file
// system has to answer. A namespace that is open is looked at later.
func (m *mounts) at(path string) {
	var st unix.Statx_t
	const flags = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT
	if unix.Statx(unix.AT_FDCWD, path, flags, 0, &st) != nil || st.Dev_major != 0 {
		return
	}
	if int(st.Dev_minor) == m.nsfs {
		m.want(st.Ino)
		return
	}
	m.open(int(st.Dev_minor))
}
