package vfs

import (
	"math/rand/v2"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// step is one operation of the model test, the same for every file system. The meaning of a field
// depends on the operation; see operations.
type step struct {
	Do    string
	A, B  string `json:",omitempty"` // absolute paths, or relative ones below the directory open as At
	At    int    `json:",omitempty"` // slot plus one; 0 for none
	Fd    int    `json:",omitempty"` // slot
	To    int    `json:",omitempty"` // slot
	Off   int64  `json:",omitempty"`
	Dest  int64  `json:",omitempty"` // offset
	N     int    `json:",omitempty"` // bytes
	Flags int    `json:",omitempty"`
	Mode  uint32 `json:",omitempty"`
	Fill  byte   `json:",omitempty"` // first byte to write
	Look  bool   `json:",omitempty"` // stat all that the step names afterwards
}

const (
	slots    = 6 // open files
	mapSlots = 2 // mapped files
)

// fewNames are few, so that steps meet.
var fewNames = []string{"a", "b", "c", "d", "f", "g", "h", "l"}

// stepMaker makes steps up. It knows nothing of their outcome: any sublist of
// its steps can be run.
type stepMaker struct {
	*rand.Rand
	known []string // paths that were there once
}

// makeSteps returns n steps on a tree with these paths, including occasional comparisons of the
// whole tree.
func makeSteps(r *rand.Rand, known []string, n int) []step {
	m := &stepMaker{r, append([]string{"/"}, known...)}
	weights := stepWeights()
	total := 0
	for _, w := range weights {
		total += w.weight
	}
	steps := make([]step, 0, n+1)
	for len(steps) < n {
		at := m.IntN(total)
		for _, w := range weights {
			if at -= w.weight; at < 0 {
				steps = append(steps, m.step(w.do))
				break
			}
		}
		if len(steps)%40 == 0 {
			steps = append(steps, step{Do: "check"})
		}
	}
	return append(steps, step{Do: "check"})
}

type stepWeight struct {
	do     string
	weight int
}

func stepWeights() []stepWeight {
	return []stepWeight{
		{"open", 40},
		{"tmpfile", 4},
		{"linkfd", 4},
		{"close", 8},
		{"read", 6},
		{"pread", 12},
		{"write", 8},
		{"pwrite", 16},
		{"truncate", 6},
		{"ftruncate", 6},
		{"fallocate", 8},
		{"seek", 8},
		{"copy", 8},
		{"sendfile", 3},
		{"fsync", 2},
		{"mapwrite", 6},
		{"mapprivate", 4},
		{"map", 5},
		{"mread", 6},
		{"mwrite", 6},
		{"unmap", 2},
		{"flock", 5},
		{"lock", 6},
		{"getlock", 4},
		{"rename", 24},
		{"link", 8},
		{"symlink", 5},
		{"readlink", 3},
		{"unlink", 10},
		{"rmdir", 6},
		{"mkdir", 10},
		{"mkfifo", 1},
		{"chmod", 8},
		{"fchmod", 3},
		{"chown", 4},
		{"fchown", 2},
		{"utimes", 6},
		{"futimes", 3},
		{"setxattr", 6},
		{"getxattr", 4},
		{"removexattr", 3},
		{"listxattr", 3},
		{"fsetxattr", 3},
		{"list", 6},
		{"flist", 6},
		{"statx", 6},
		{"access", 3},
		{"forget", 6},
	}
}

func (m *stepMaker) step(do string) step {
	s := step{
		Do: do, Fd: m.IntN(slots), To: m.IntN(slots), Fill: byte(1 + m.IntN(255)), Look: m.IntN(3) > 0,
		Off: m.offset(), Dest: m.offset(), N: m.size(),
	}
	s.Mode = pick[uint32](m, 0o644, 0o755, 0o600, 0o444, 0o000, 0o777, 0o4755, 0o1777, 0o2750)
	switch do {
	case "open":
		s.Flags = m.openFlags()
	case "tmpfile":
		s.Flags = pick(m, unix.O_RDWR, unix.O_WRONLY, unix.O_RDWR|unix.O_EXCL, unix.O_RDONLY)
	case "fallocate":
		s.Flags = pick(m, 0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE,
			unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_ZERO_RANGE,
			unix.FALLOC_FL_COLLAPSE_RANGE, unix.FALLOC_FL_INSERT_RANGE)
		if m.IntN(2) == 0 { // to blocks
			s.Off, s.N = s.Off&^4095, (s.N+4096)&^4095
		}
	case "sendfile", "copy":
		s.Off, s.Dest = s.Off&(1<<20-1), s.Dest&(1<<20-1)
	case "truncate":
		s.Off &= 1<<20 - 1
	case "seek":
		s.Off &= 1<<20 - 1
		s.Flags = pick(m, unix.SEEK_DATA, unix.SEEK_HOLE, unix.SEEK_DATA, unix.SEEK_HOLE, unix.SEEK_SET, unix.SEEK_END, 99)
	case "flock":
		s.Flags = pick(m, unix.LOCK_SH, unix.LOCK_EX, unix.LOCK_UN)
	case "lock", "getlock":
		s.Flags = pick(m, unix.F_RDLCK, unix.F_WRLCK, unix.F_UNLCK)
	case "rename":
		s.Flags = pick(m, 0, 0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE,
			unix.RENAME_EXCHANGE|unix.RENAME_NOREPLACE)
	case "link":
		s.Flags = pick(m, 0, 0, unix.AT_SYMLINK_FOLLOW)
	case "chown", "utimes", "statx":
		s.Flags = pick(m, 0, unix.AT_SYMLINK_NOFOLLOW)
	case "setxattr", "fsetxattr":
		s.Flags = pick(m, 0, 0, unix.XATTR_CREATE, unix.XATTR_REPLACE)
	}
	m.paths(&s)
	return s
}

// paths fills in the paths of the step.
func (m *stepMaker) paths(s *step) {
	s.A = m.path(s.Do == "mkdir" || s.Do == "open" && s.Flags&unix.O_CREAT != 0)
	switch s.Do {
	case "rename", "link", "linkfd", "symlink":
		s.B = m.path(true)
	}
	if m.IntN(8) == 0 { // mostly the slot is no directory, which is an error to compare as well
		s.At = 1 + m.IntN(slots)
		s.A = strings.TrimPrefix(path.Base(s.A), "/")
		s.B = strings.TrimPrefix(s.B, "/")
	}
	if s.Do == "symlink" {
		s.A = pick(m, m.path(false), "../"+pick(m, fewNames...), pick(m, fewNames...), ".", strings.Repeat("long/", 60), s.B)
	}
}

// path returns one of a path that may be there; a fresh one is remembered.
func (m *stepMaker) path(fresh bool) string {
	if !fresh && m.IntN(5) > 0 || m.IntN(4) == 0 {
		return pick(m, m.known...)
	}
	if m.IntN(100) == 0 {
		return pick(m, "", "/"+strings.Repeat("x", 256), "/"+strings.Repeat("x", 255), "/a/", "/f/", "/l/.", "/a/..", "/../a")
	}
	p := "/"
	if m.IntN(2) == 0 {
		p = pick(m, m.known...)
	}
	p = path.Join(p, pick(m, fewNames...))
	if m.IntN(3) == 0 {
		p = path.Join(p, pick(m, fewNames...))
	}
	if strings.Count(p, "/") > 5 {
		p = "/" + pick(m, fewNames...)
	}
	m.known = append(m.known, p)
	if len(m.known) > 60 {
		m.known[m.IntN(len(m.known))] = m.known[len(m.known)-1]
		m.known = m.known[:len(m.known)-1]
	}
	return p
}

func (m *stepMaker) openFlags() int {
	flags := pick(m, unix.O_RDONLY, unix.O_RDONLY, unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_RDWR, unix.O_RDWR)
	for _, f := range []struct{ flag, in int }{
		{unix.O_CREAT, 3},
		{unix.O_EXCL, 8},
		{unix.O_TRUNC, 6},
		{unix.O_APPEND, 6},
		{unix.O_DIRECTORY, 8},
		{unix.O_NOFOLLOW, 8},
		{unix.O_NOATIME, 20},
		{unix.O_SYNC, 20},
		{unix.O_PATH, 20},
	} {
		if m.IntN(f.in) == 0 {
			flags |= f.flag
		}
	}
	return flags
}

func (m *stepMaker) offset() int64 {
	switch m.IntN(30) {
	case 0:
		return -1
	case 1:
		return 1 << 60
	case 2, 3, 4:
		return int64(m.IntN(1 << 20))
	case 5, 6, 7, 8, 9:
		return int64(m.IntN(1<<16)) &^ 4095
	case 10, 11, 12, 13:
		return 0
	}
	return int64(m.IntN(1 << 14))
}

func (m *stepMaker) size() int {
	switch m.IntN(6) {
	case 0:
		return m.IntN(1 << 17)
	case 1:
		return m.IntN(3)
	}
	return m.IntN(1 << 13)
}

func pick[T any](m *stepMaker, list ...T) T { return list[m.IntN(len(list))] }
