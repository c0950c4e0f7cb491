package frame

import (
	"math/rand/v2"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

// traits are what an action could have changed of a folder, apart from owner, mode and extended
// attributes. A new folder has those of the one that it is in.
type traits struct {
	device uint64
	flags  uint32 // ioctl_iflags(2)
	more   fsxattr
	// Not every file system has them.
	noFlags, noMore unix.Errno
}

// fsxattr is struct fsxattr of <linux/fs.h>.
type fsxattr struct {
	flags, extent, extents, project, copyExtent uint32
	_                                           [8]byte
}

const (
	getFsxattr = 0x801c581f // FS_IOC_FSGETXATTR
	setVersion = 0x40087602 // FS_IOC_SETVERSION
)

// traitsOf returns the traits of an open folder.
func traitsOf(fd int) (t traits, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return t, err
	}
	t.read(fd, &st)
	return t, nil
}

func (t *traits) read(fd int, st *unix.Stat_t) {
	t.device = uint64(st.Dev)
	_, _, t.noFlags = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.FS_IOC_GETFLAGS, uintptr(unsafe.Pointer(&t.flags)))
	_, _, t.noMore = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getFsxattr, uintptr(unsafe.Pointer(&t.more)))
	t.more.extents = 0 // how many blocks it has
}

// isNew gives an open folder the mode of a new one, and reports whether all else is as in a new one,
// but for times and entries.
func (f *Frame) isNew(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || (folder.Owner{UID: st.Uid, GID: st.Gid}) != f.Owner() || st.Size > folder.MaxBytes {
		return false
	}
	if n, err := unix.Flistxattr(fd, nil); err != nil || n > 0 {
		return false
	}
	var t traits
	if t.read(fd, &st); t != f.traits {
		return false
	}
	if f.numbered && setGeneration(fd) != nil {
		return false
	}
	return st.Mode == unix.S_IFDIR|newMode || unix.Fchmod(fd, newMode) == nil
}

// setGeneration gives a folder another generation, the number by which a file system distinguishes
// inodes that had the same inode number. Like that of a new folder, it is random. ext4 without
// checksums lets owners set it, other file systems return an error.
func setGeneration(fd int) error {
	n := rand.Uint32()
	_, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), setVersion, uintptr(unsafe.Pointer(&n)))
	if err != 0 {
		return err
	}
	return nil
}
