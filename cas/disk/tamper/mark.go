package tamper

import (
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// longestTick is longer than a tick of the kernel's clock, which is 1 to 10 ms.
const longestTick = 20 * time.Millisecond

// Mark identifies a file and its state, among all on this machine until its next start. It combines
// the device, inode number, size and change time, which cannot be set. If the file system keeps
// times in ticks, two changes within one tick of the kernel's clock have the same mark; a change
// that the disk makes by itself has none.
func Mark(st *unix.Stat_t) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, v := range [...]uint64{
		uint64(st.Dev), st.Ino, uint64(st.Size), uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec),
	} {
		// The mixing function of splitmix64 (Steele et al., 2014), applied to all values so far.
		h += v + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// MarkOf returns the mark of the file at path; it does not follow a link.
func MarkOf(path string) (uint64, error) {
	st, err := StatOf(path)
	if err != nil {
		return 0, err
	}
	return Mark(&st), nil
}

// SettledMarkOf is MarkOf, and reports whether every later change gives the file another mark: the
// last one is longer ago than a tick of the kernel's clock, and than the resolution of the file
// system.
func SettledMarkOf(path string) (mark uint64, settled bool, err error) {
	now := time.Now()
	st, err := StatOf(path)
	if err != nil {
		return 0, false, err
	}
	age := longestTick
	if st.Ctim.Nsec == 0 {
		age += time.Second // the file system may keep whole seconds
	}
	return Mark(&st), now.Sub(time.Unix(st.Ctim.Unix())) > age, nil
}

// StatOf returns the attributes of the file at path; it does not follow a link.
func StatOf(path string) (st unix.Stat_t, err error) {
	for {
		switch err := unix.Lstat(path, &st); err {
		case nil:
			return st, nil
		case unix.EINTR:
		default:
			return st, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
}

// MarkOfOpen returns the mark of an open file.
func MarkOfOpen(fd uintptr) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(fd), &st); err != nil {
		return 0, err
	}
	return Mark(&st), nil
}
