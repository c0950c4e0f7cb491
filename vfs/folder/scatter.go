package folder

import (
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// scatterFiles is how many files a Scatter has in one folder. ext4 has thousands of inodes in one
// place; a folder costs about as much as a file.
const scatterFiles = 256

// A Scatter chooses folders for new files that are later moved elsewhere. On ext4 without a journal
// it makes a new folder for every few hundred files, far from the others (Spread): the place of a
// file on the disk is that of the folder where it is made, and files that were removed near there
// slow it down. On other disks it always chooses the same folder. Its methods may be called
// concurrently.
type Scatter struct {
	dir   string
	apart bool

	mu    sync.Mutex
	now   string // where the next file goes; guarded by mu
	files int    // chosen for now, so far; guarded by mu
	// turning: a caller makes the next folder, and the others stay. Guarded by mu.
	turning bool
	left    []string // earlier folders that may still have files; guarded by mu
}

// NewScatter returns one of folders below dir, which exists.
func NewScatter(dir string) *Scatter {
	s := &Scatter{dir: dir, now: dir, files: scatterFiles}
	s.apart = looksBackAt(dir) && Spread(dir) == nil // else files are only made more slowly
	return s
}

// Next returns the folder for one file. That may be gone when the file is made, if another caller
// has found it empty: then any other folder below dir, and dir itself, serve as well.
func (s *Scatter) Next() string {
	s.mu.Lock()
	now, turn := s.now, s.apart && !s.turning && s.files >= scatterFiles
	s.files++
	s.turning = s.turning || turn
	s.mu.Unlock()
	if !turn {
		return now
	}
	next, err := os.MkdirTemp(s.dir, "incoming-to-")
	if err != nil { // such as on a full disk; the maker of the file gets the error
		next = s.dir
	}
	s.turn(next)
	return next
}

// turn makes next the folder for the next files, and removes those that are empty.
func (s *Scatter) turn(next string) {
	s.mu.Lock()
	left := s.left
	if s.now != s.dir {
		left = append(left, s.now)
	}
	s.now, s.files, s.left = next, 1, nil
	s.mu.Unlock()
	left = slices.DeleteFunc(left, func(dir string) bool {
		return unix.Rmdir(dir) != unix.ENOTEMPTY
	})
	s.mu.Lock()
	s.left, s.turning = left, false
	s.mu.Unlock()
}
