package vfs

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func sorted(list []string) string {
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func (o *operator) rename(s step) string {
	return done(unix.Renameat2(o.at(s), s.A, o.at(s), s.B, uint(s.Flags)))
}

func (o *operator) link(s step) string {
	return done(unix.Linkat(o.at(s), s.A, o.at(s), s.B, s.Flags))
}

func (o *operator) symlink(s step) string { return done(unix.Symlinkat(s.A, o.at(s), s.B)) }

func (o *operator) readlink(s step) string {
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(o.at(s), s.A, b)
	if err != nil {
		return done(err)
	}
	return string(b[:n])
}

func (o *operator) unlink(s step) string { return done(unix.Unlinkat(o.at(s), s.A, 0)) }

func (o *operator) rmdir(s step) string {
	return done(unix.Unlinkat(o.at(s), s.A, unix.AT_REMOVEDIR))
}

func (o *operator) mkdir(s step) string { return done(unix.Mkdirat(o.at(s), s.A, s.Mode)) }

func (o *operator) mkfifo(s step) string {
	return done(unix.Mknodat(o.at(s), s.A, unix.S_IFIFO|s.Mode&0o777, 0))
}

func (o *operator) chmod(s step) string { return done(unix.Fchmodat(o.at(s), s.A, s.Mode, 0)) }

func (o *operator) chown(s step) string {
	return done(unix.Fchownat(o.at(s), s.A, int(s.Fill%3), int(s.Fill%5), s.Flags))
}

// timesOf returns two times of long ago, or leaves one of them to the kernel.
func timesOf(s step) [2]unix.Timespec {
	old := unix.Timespec{Sec: 1_000_000_000 + int64(s.Fill)*1_000_000, Nsec: int64(s.N)}
	times := [2]unix.Timespec{old, old}
	times[1].Sec += 77
	switch s.Fill % 8 {
	case 0:
		times[1].Nsec = unix.UTIME_NOW
	case 1:
		times[1].Nsec = unix.UTIME_OMIT
	case 2:
		times[0].Nsec = unix.UTIME_OMIT
	case 3:
		times[0].Nsec = 1_000_000_000 // more than a second has
	}
	return times
}

func (o *operator) utimes(s step) string {
	times := timesOf(s)
	if err := unix.UtimesNanoAt(o.at(s), s.A, times[:], s.Flags); err != nil {
		return done(err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(o.at(s), s.A, &st, s.Flags); err != nil {
		return done(err)
	}
	if times[0].Nsec == unix.UTIME_OMIT {
		return "ok"
	}
	return fmt.Sprintf("ok %d.%09d", st.Atim.Sec, st.Atim.Nsec)
}

func xattrName(s step) string {
	return [...]string{"user.one", "user.two", "user.three", "system.none"}[int(s.Fill)%4]
}

func (o *operator) setXattr(s step) string {
	set := unix.Setxattr
	if s.Mode == 0o600 {
		set = unix.Lsetxattr
	}
	return done(set(s.A, xattrName(s), fill(s)[:min(s.N, 40)], s.Flags))
}

func (o *operator) getXattr(s step) string {
	b := make([]byte, 40-s.Fill%30)
	n, err := unix.Getxattr(s.A, xattrName(s), b)
	return got(b[:max(n, 0)], noXattr(s, err))
}

func (o *operator) removeXattr(s step) string {
	return done(noXattr(s, unix.Removexattr(s.A, xattrName(s))))
}

// noXattr treats a file without extended attributes and one that cannot have
// them alike. See the differences in the comment of TestModel.
func noXattr(s step, err error) error {
	if errors.Is(err, unix.ENOTSUP) && strings.HasPrefix(xattrName(s), "user.") {
		return unix.ENODATA
	}
	return err
}

func (o *operator) listXattr(s step) string { return xattrs(s.A) }

// xattrs lists names and values, of a symlink its own.
func xattrs(p string) string {
	b := make([]byte, 1<<12)
	n, err := unix.Llistxattr(p, b)
	if errors.Is(err, unix.ENOTSUP) { // as noXattr
		return ""
	}
	if err != nil {
		return done(err)
	}
	var list []string
	for name := range bytes.SplitSeq(bytes.TrimSuffix(b[:n], []byte{0}), []byte{0}) {
		if len(name) == 0 {
			continue
		}
		v := make([]byte, 1<<10)
		n, err := unix.Lgetxattr(p, string(name), v)
		list = append(list, string(name)+"="+got(v[:max(n, 0)], err))
	}
	return sorted(list)
}

// list reads a directory, goes back to its beginning and reads it again.
func (o *operator) list(s step) string {
	fd, err := unix.Openat(o.at(s), s.A, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return done(err)
	}
	defer func() { _ = unix.Close(fd) }()
	first := entries(fd)
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return done(err)
	}
	if second := entries(fd); second != first {
		return first + " and, read again, " + second
	}
	return first
}

func (o *operator) statx(s step) string {
	var st unix.Statx_t
	if err := unix.Statx(o.at(s), s.A, s.Flags, unix.STATX_BASIC_STATS, &st); err != nil {
		return done(err)
	}
	return fmt.Sprintf("%06o mask %x attributes %x", st.Mode,
		st.Mask&unix.STATX_BASIC_STATS&^unix.STATX_ATIME, st.Attributes&unix.STATX_ATTR_APPEND)
}

func (o *operator) access(s step) string {
	return done(unix.Faccessat(o.at(s), s.A, uint32(s.Fill%8), 0))
}

func (o *operator) lstat(s step, p string) string {
	var st unix.Stat_t
	if err := unix.Fstatat(o.at(s), p, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return done(err)
	}
	return attributes(&st)
}

// forget makes the kernel drop what it remembers of the names in a root: a remount does. Overlayfs
// then goes by what it has written to the layers. A plain folder is no mount.
func (o *operator) forget(step) string {
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_NODEV, ""); err != nil && !errors.Is(err, unix.EINVAL) {
		return done(err)
	}
	return ""
}

// check describes the whole tree.
func (o *operator) check(step) string {
	c := checker{first: map[[2]uint64]string{}, buffer: make([]byte, 1<<20)}
	c.add("/")
	return strings.Join(c.lines, "\n\t")
}

type checker struct {
	lines []string
	first map[[2]uint64]string // the first name of each file that has several

	buffer []byte // for reading files; with -race, making one takes longer than reading most files
}

func (c *checker) add(p string) {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		c.lines = append(c.lines, p+" "+done(err))
		return
	}
	line := p + " " + attributes(&st)
	var names []string
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		line += " " + c.content(p)
		if first, ok := c.first[[2]uint64{st.Dev, st.Ino}]; ok {
			line += " same file as " + first
		} else {
			c.first[[2]uint64{st.Dev, st.Ino}] = p
		}
	case unix.S_IFLNK:
		line += " -> " + (&operator{}).readlink(step{A: p})
	case unix.S_IFDIR:
		list := (&operator{}).list(step{A: p})
		line += " [" + list + "]"
		for e := range strings.SplitSeq(list, ", ") {
			if name, _, ok := strings.Cut(e, " "); ok {
				names = append(names, name)
			}
		}
	}
	c.lines = append(c.lines, line+" {"+xattrs(p)+"}")
	for _, name := range names {
		c.add(path.Join(p, name))
	}
}

// content reads a file to its end.
func (c *checker) content(p string) string {
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if err != nil {
		return done(err)
	}
	defer func() { _ = unix.Close(fd) }()
	size, hash := 0, sha256.New()
	for {
		n, err := unix.Read(fd, c.buffer)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return done(err)
		case n == 0:
			return fmt.Sprintf("%d bytes %.6x", size, hash.Sum(nil))
		default:
			hash.Write(c.buffer[:n])
			size += n
		}
	}
}
