package vfs

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// operator runs steps on the tree that it was locked into, in a process that
// serves no FUSE.
type operator struct {
	fds  [slots]int
	maps [mapSlots][]byte
}

// operate runs steps, as JSON, with dir as the root of the file system and
// returns their outcomes, as JSON. Inside, ".." and absolute symlinks stay inside.
func operate(dir, steps string) (string, error) {
	var list []step
	if err := json.Unmarshal([]byte(steps), &list); err != nil {
		return "", err
	}
	outside, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(outside) }()
	defer unix.Umask(unix.Umask(0o022))
	if err := errors.Join(unix.Chroot(dir), unix.Chdir("/")); err != nil {
		return "", err
	}
	o := &operator{}
	for i := range o.fds {
		o.fds[i] = -1
	}
	outcomes := make([]string, len(list))
	for i, s := range list {
		outcomes[i] = o.run(s)
	}
	o.closeAll()
	if err := errors.Join(unix.Fchdir(outside), unix.Chroot(".")); err != nil {
		return "", err
	}
	b, err := json.Marshal(outcomes)
	return string(b), err
}

func (o *operator) closeAll() {
	for i := range o.maps {
		o.unmap(step{Fd: i})
	}
	for i := range o.fds {
		o.closeSlot(i)
	}
}

func (o *operator) closeSlot(i int) {
	if o.fds[i] >= 0 {
		_ = unix.Close(o.fds[i])
		o.fds[i] = -1
	}
}

func (o *operator) run(s step) string {
	outcome := operations()[s.Do](o, s)
	if !s.Look {
		return outcome
	}
	looks := []string{outcome}
	for _, p := range []string{s.A, s.B} {
		if p != "" {
			looks = append(looks, p+": "+o.lstat(s, p))
		}
	}
	if o.fds[s.Fd] >= 0 {
		looks = append(looks, fmt.Sprintf("slot %d: %s", s.Fd, fstat(o.fds[s.Fd])))
	}
	return strings.Join(looks, "\n\t")
}

// at returns the directory that the paths of s are relative to; of a slot that
// is not open an error of the kernel.
func (o *operator) at(s step) int {
	if s.At == 0 {
		return unix.AT_FDCWD
	}
	return o.fds[s.At-1]
}

func operations() map[string]func(*operator, step) string {
	return map[string]func(*operator, step) string{
		"open": (*operator).open, "tmpfile": (*operator).tmpfile, "linkfd": (*operator).linkFd, "close": (*operator).close,
		"read": (*operator).read, "pread": (*operator).pread, "write": (*operator).write, "pwrite": (*operator).pwrite,
		"truncate": (*operator).truncate, "ftruncate": (*operator).ftruncate, "fallocate": (*operator).fallocate,
		"seek": (*operator).seek, "copy": (*operator).copy, "sendfile": (*operator).sendfile, "fsync": (*operator).fsync,
		"mapwrite": (*operator).mapWrite, "mapprivate": (*operator).mapPrivate,
		"map": (*operator).mmap, "mread": (*operator).mread, "mwrite": (*operator).mwrite, "unmap": (*operator).unmap,
		"flock": (*operator).flock, "lock": (*operator).lock, "getlock": (*operator).getLock,
		"rename": (*operator).rename, "link": (*operator).link, "symlink": (*operator).symlink,
		"readlink": (*operator).readlink, "unlink": (*operator).unlink, "rmdir": (*operator).rmdir,
		"mkdir": (*operator).mkdir, "mkfifo": (*operator).mkfifo, "chmod": (*operator).chmod, "fchmod": (*operator).fchmod,
		"chown": (*operator).chown, "fchown": (*operator).fchown, "utimes": (*operator).utimes, "futimes": (*operator).futimes,
		"setxattr": (*operator).setXattr, "getxattr": (*operator).getXattr, "removexattr": (*operator).removeXattr,
		"listxattr": (*operator).listXattr, "fsetxattr": (*operator).fsetXattr,
		"list": (*operator).list, "flist": (*operator).flist, "statx": (*operator).statx, "access": (*operator).access,
		"check": (*operator).check, "forget": (*operator).forget,
	}
}

// done is the outcome of a call that only succeeds or fails: the error's name.
func done(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// moved is the outcome of a call that returns a number.
func moved(n int64, err error) string {
	if err != nil {
		return done(err)
	}
	return fmt.Sprint(n)
}

func got(b []byte, err error) string {
	if err != nil {
		return done(err)
	}
	return fmt.Sprintf("%d bytes %.6x", len(b), sha256.Sum256(b))
}

// fill returns what s writes.
func fill(s step) []byte {
	b := make([]byte, s.N)
	for i := range b {
		b[i] = s.Fill + byte(i/7)
	}
	return b
}

func (o *operator) keep(slot, fd int, err error) string {
	if err != nil {
		return done(err)
	}
	o.closeSlot(slot)
	o.fds[slot] = fd
	return "ok " + fstat(fd)
}

// open never waits for the other end of a pipe. Opening alone must not change
// the time of a file; see the differences in the comment of TestModel.
func (o *operator) open(s step) string {
	var before, after unix.Stat_t
	noFile := unix.Fstatat(o.at(s), s.A, &before, 0)
	fd, err := unix.Openat(o.at(s), s.A, s.Flags|unix.O_CLOEXEC|unix.O_NONBLOCK, s.Mode)
	if err == nil && noFile == nil && s.Flags&unix.O_TRUNC == 0 && s.Flags&unix.O_ACCMODE != unix.O_RDONLY {
		if unix.Fstat(fd, &after) == nil && after.Mtim != before.Mtim {
			err = setTimes(fd, &[2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, before.Mtim})
		}
	}
	return o.keep(s.Fd, fd, err)
}

func (o *operator) tmpfile(s step) string {
	fd, err := unix.Openat(o.at(s), s.A, s.Flags|unix.O_TMPFILE|unix.O_CLOEXEC, s.Mode)
	return o.keep(s.Fd, fd, err)
}

func (o *operator) linkFd(s step) string {
	return done(unix.Linkat(o.fds[s.Fd], "", o.at(s), s.B, unix.AT_EMPTY_PATH))
}

func (o *operator) close(s step) string {
	o.closeSlot(s.Fd)
	return ""
}

func (o *operator) read(s step) string {
	b := make([]byte, s.N)
	n, err := unix.Read(o.fds[s.Fd], b)
	return got(b[:max(n, 0)], err)
}

func (o *operator) pread(s step) string {
	b := make([]byte, s.N)
	n, err := unix.Pread(o.fds[s.Fd], b, s.Off)
	return got(b[:max(n, 0)], err)
}

func (o *operator) write(s step) string {
	n, err := unix.Write(o.fds[s.Fd], fill(s))
	return moved(int64(n), err)
}

func (o *operator) pwrite(s step) string {
	n, err := unix.Pwrite(o.fds[s.Fd], fill(s), s.Off)
	return moved(int64(n), err)
}

// truncate has no variant with a directory; with At it goes by the slot itself.
func (o *operator) truncate(s step) string { return done(unix.Truncate(s.A, s.Off)) }

func (o *operator) ftruncate(s step) string { return done(unix.Ftruncate(o.fds[s.Fd], s.Off)) }

func (o *operator) fallocate(s step) string {
	return done(unix.Fallocate(o.fds[s.Fd], uint32(s.Flags), s.Off, int64(s.N)))
}

func (o *operator) seek(s step) string {
	var st unix.Stat_t
	if unix.Fstat(o.fds[s.Fd], &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		s.Off, s.Flags = 0, unix.SEEK_SET
	}
	return moved(unix.Seek(o.fds[s.Fd], s.Off, s.Flags))
}

// copy does what cp(1) does: where the kernel cannot copy between two file
// systems, it reads and writes. See the differences in the comment of TestModel.
func (o *operator) copy(s step) string {
	from, to := s.Off, s.Dest
	n, err := unix.CopyFileRange(o.fds[s.Fd], &from, o.fds[s.To], &to, s.N, 0)
	if errors.Is(err, unix.EXDEV) {
		b := make([]byte, s.N)
		if n, err = unix.Pread(o.fds[s.Fd], b, s.Off); err == nil {
			n, err = unix.Pwrite(o.fds[s.To], b[:n], s.Dest)
		}
	}
	return moved(int64(n), err) + " " + fstat(o.fds[s.To])
}

func (o *operator) sendfile(s step) string {
	from := s.Off
	n, err := unix.Sendfile(o.fds[s.To], o.fds[s.Fd], &from, s.N)
	return moved(int64(n), err)
}

func (o *operator) fsync(s step) string { return done(unix.Fsync(o.fds[s.Fd])) }

func (o *operator) fchmod(s step) string {
	return o.change(s, func(fd int) error { return unix.Fchmod(fd, s.Mode) })
}

func (o *operator) fchown(s step) string {
	return o.change(s, func(fd int) error { return unix.Fchown(fd, int(s.Fill%3), int(s.Fill%5)) })
}

func (o *operator) futimes(s step) string {
	if o.fds[s.Fd] < 0 {
		return done(unix.EBADF) // a negative number might mean the working directory
	}
	times := timesOf(s)
	return o.change(s, func(fd int) error { return setTimes(fd, &times) })
}

func setTimes(fd int, times *[2]unix.Timespec) error {
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(times)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (o *operator) fsetXattr(s step) string {
	return o.change(s, func(fd int) error {
		return unix.Fsetxattr(fd, xattrName(s), fill(s)[:min(s.N, 40)], s.Flags)
	})
}

func (o *operator) flist(s step) string {
	if _, err := unix.Seek(o.fds[s.Fd], 0, unix.SEEK_SET); err != nil {
		return done(err)
	}
	list := entries(o.fds[s.Fd])
	_, _ = unix.Seek(o.fds[s.Fd], 0, unix.SEEK_SET)
	return list
}

// longAgo is before everything that the test does; younger times are shown as "now".
var longAgo = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

func readOnly(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY
}

// change changes attributes through a descriptor, unless it is open for reading
// only: see the differences in the comment of TestModel.
func (o *operator) change(s step, do func(fd int) error) string {
	if readOnly(o.fds[s.Fd]) {
		return "open for reading only"
	}
	return done(do(o.fds[s.Fd]))
}

// fstat describes an open file, the links of one that is open for reading only left out.
func fstat(fd int) string {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return done(err)
	}
	if readOnly(fd) {
		st.Nlink = 1
	}
	return attributes(&st)
}

// attributes returns the attributes that must be the same everywhere. See the differences in the
// comment of TestModel.
func attributes(st *unix.Stat_t) string {
	when := "now"
	if m := time.Unix(st.Mtim.Unix()); m.Before(longAgo) {
		when = m.UTC().Format(time.RFC3339Nano)
	}
	size := fmt.Sprintf(" size %d links %d", st.Size, st.Nlink)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		size = ""
	}
	return fmt.Sprintf("%06o %d:%d%s %s", st.Mode, st.Uid, st.Gid, size, when)
}

// entries lists an open directory from where it stands.
func entries(fd int) string {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return done(err)
	}
	f := os.NewFile(uintptr(dup), "")
	defer func() { _ = f.Close() }()
	list, err := f.ReadDir(-1)
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return done(errno)
	}
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.Name() + " " + e.Type().String()
	}
	return sorted(out)
}
