package uncharged

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

// shownAgain is how many times most locks may be shown until LocksOf stops.
const shownAgain = 8

// Everyone returns the processes that this one can see.
func Everyone() (pids []int) {
	for process := range folder.Names("/proc") {
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// LocksOf counts the locks of files that processes have open, each once, up to most or some more.
// It does not see locks of a file that is only mapped, or on its way through a socket. To show the
// locks of one file the kernel takes up to 200 bytes for each, and charges the caller for them.
//
// The count is uncertain in three cases: if processes end meanwhile; if ctx ends, upon which LocksOf
// stops and may have counted some locks twice; or if the processes have the same files open so many
// times that their descriptors show eight times most locks. Then the count is above most.
func LocksOf(ctx context.Context, pids []int, most int) (n int, certain bool) {
	var all []lockedFile
	text, shown := bufio.NewReaderSize(nil, 1<<16), 0
	for _, pid := range pids {
		for thread := range folder.Tables(pid) {
			for path := range folder.Names(filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(thread), "fdinfo")) {
				if ctx.Err() != nil {
					return shown, false
				}
				f := lockedFile{thread: thread}
				f.fd, _ = strconv.Atoi(filepath.Base(path))
				if f.look(text, path); f.posix+f.others == 0 {
					continue
				}
				all = append(all, f)
				if shown += f.posix + f.others; shown > shownAgain*most {
					n, _ = sumOnce(ctx, all)
					return max(n, most+1), false
				}
			}
		}
	}
	if shown <= most {
		return shown, true
	}
	if n, certain = sumOnce(ctx, all); ctx.Err() != nil {
		return shown, false
	}
	return n, certain
}

// A lockedFile is a descriptor whose file has locks: those of its table of open files (POSIX), and
// others, which are those of the file wherever it is open.
type lockedFile struct{ thread, fd, posix, others int }

// look reads the locks of a descriptor from its file in /proc.
func (f *lockedFile) look(text *bufio.Reader, path string) {
	file, err := os.Open(path)
	if err != nil {
		return // it is closed
	}
	defer file.Close()
	text.Reset(file)
	for {
		line, err := text.ReadSlice('\n')
		if err != nil {
			return
		}
		lock, ok := bytes.CutPrefix(line, []byte("lock:"))
		if !ok {
			continue
		}
		if _, kind, _ := bytes.Cut(lock, []byte(": ")); bytes.HasPrefix(kind, []byte("POSIX")) {
			f.posix++
		} else {
			f.others++
		}
	}
}

// sumOnce adds up the locks of descriptors, of which several may be of one file or one table. It is
// not certain if some are not there any more, or ctx ends.
func sumOnce(ctx context.Context, all []lockedFile) (n int, certain bool) {
	certain = true
	compare := func(a, b lockedFile) int {
		order, ok := 0, ctx.Err() == nil
		if ok {
			order, ok = a.compareFile(b)
		}
		if ok && order == 0 {
			order, ok = a.compareTable(b)
		}
		if !ok {
			certain = false
			return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.fd, b.fd))
		}
		return order
	}
	slices.SortFunc(all, compare)
	for i, f := range all {
		if i == 0 {
			n += f.posix + f.others
			continue
		}
		if ctx.Err() != nil {
			break
		}
		sameFile, _ := f.compareFile(all[i-1])
		sameTable, _ := f.compareTable(all[i-1])
		if sameFile != 0 {
			n += f.others
		}
		if sameFile != 0 || sameTable != 0 {
			n += f.posix
		}
	}
	return n, certain
}

// compareFile orders descriptors by the open file that they are of; 0: they are of the same.
func (f lockedFile) compareFile(g lockedFile) (order int, ok bool) {
	const file = 0 // KCMP_FILE
	return kcmp(f.thread, g.thread, file, f.fd, g.fd)
}

// compareTable orders descriptors by the table of open files that they are in.
func (f lockedFile) compareTable(g lockedFile) (order int, ok bool) {
	const files = 2 // KCMP_FILES
	return kcmp(f.thread, g.thread, files, 0, 0)
}

// kcmp is kcmp(2). If it does not know, the two are not the same.
func kcmp(thread, other, kind, index, otherIndex int) (order int, ok bool) {
	result, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(thread), uintptr(other), uintptr(kind), uintptr(index), uintptr(otherIndex), 0)
	switch {
	case errno == 0 && result == 0:
		return 0, true
	case errno == 0 && result == 1:
		return -1, true
	case errno == 0 && result == 2:
		return 1, true
	}
	return 1, false
}
