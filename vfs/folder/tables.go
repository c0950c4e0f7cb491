package folder

import (
	"iter"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// namesAtOnce is how many names of a folder are held at a time.
const namesAtOnce = 1024

// Tables yields threads of a process that together show all its tables of open files: usually one,
// because threads share theirs. It may yield a redundant thread, if an earlier one, neither the
// first nor the latest, has the same table. The files are below /proc/PID/task/THREAD.
func Tables(pid int) iter.Seq[int] {
	return func(yield func(int) bool) {
		var first, last int
		for thread := range Names(filepath.Join("/proc", strconv.Itoa(pid), "task")) {
			tid, err := strconv.Atoi(filepath.Base(thread))
			if err != nil || first != 0 && (sharesFiles(tid, first) || sharesFiles(tid, last)) {
				continue
			}
			if first == 0 {
				first = tid
			}
			last = tid
			if !yield(tid) {
				return
			}
		}
	}
}

// Names yields the path of each name in a folder, in any order, and holds few of them at a time. An
// unreadable folder, such as that of a process that has ended, has none.
func Names(dir string) iter.Seq[string] {
	return func(yield func(string) bool) {
		f, err := os.Open(dir)
		if err != nil {
			return
		}
		defer f.Close()
		for {
			names, err := f.Readdirnames(namesAtOnce)
			for _, name := range names {
				if !yield(filepath.Join(dir, name)) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// sharesFiles reports whether two threads have the same open files.
func sharesFiles(one, other int) bool {
	const files = 2 // KCMP_FILES
	same, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(one), uintptr(other), files, 0, 0, 0)
	return errno == unix.ENOSYS || errno == 0 && same == 0
}
