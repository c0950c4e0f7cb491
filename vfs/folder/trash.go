package folder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/crew"
)

// maxTrash is how many folders may wait for their removal; above it the caller removes the folder
// itself.
const maxTrash = 64

// Trash removes folders in the background: 15,000 files take a good part of a second. If the
// process is killed, the next start removes the rest.
type Trash struct {
	dir  string // on the file system of the removed folders
	crew *crew.Crew
	log  *zap.Logger

	remover sync.WaitGroup // of at most one goroutine, which runs while queue is not empty
	stopped atomic.Bool    // nothing more is removed

	mu     sync.Mutex
	serial int
	queue  []rubbish // guarded by mu, as is serial
}

// NewTrash makes a trash that uses the folder dir, on the file system of the removed folders. The
// folder is made when it is needed. Nobody else may use it. The Crew, which may be nil, removes.
func NewTrash(dir string, c *crew.Crew, log *zap.Logger) *Trash {
	return &Trash{dir: dir, crew: c, log: log}
}

// Dir returns the folder with the files to be removed.
func (t *Trash) Dir() string { return t.dir }

// Wait waits until everything that was put in so far is removed, or Stop was called.
func (t *Trash) Wait() { t.remover.Wait() }

// rubbish is a folder to remove.
type rubbish struct {
	path string
	// unlink removes a name that is no folder's from the open folder dir.
	unlink func(dir int, name string) error
}

// Put moves path into the trash at once and removes it later. After an error path still exists.
func (t *Trash) Put(path string) error { return t.PutWith(path, unlink) }

// PutWith is Put for a folder in which unlink removes files.
func (t *Trash) PutWith(path string, unlink func(dir int, name string) error) error {
	if err := os.Mkdir(t.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for {
		t.mu.Lock()
		t.serial++
		to := filepath.Join(t.dir, strconv.Itoa(t.serial))
		t.mu.Unlock()
		err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			t.later(rubbish{to, unlink})
			return nil
		case errors.Is(err, unix.EEXIST): // of a process that was killed
			continue
		}
		return removeTree(path, unlink) // a missing path, or a missing trash
	}
}

// Sweep removes the leftovers of a killed process from the trash.
func (t *Trash) Sweep() error {
	left, err := os.ReadDir(t.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range left {
		t.later(rubbish{filepath.Join(t.dir, e.Name()), unlink})
	}
	return err
}

func (t *Trash) later(what rubbish) {
	t.mu.Lock()
	n := len(t.queue)
	if n < maxTrash {
		t.queue = append(t.queue, what)
	}
	if n == 0 {
		t.remover.Add(1)
	}
	t.mu.Unlock()
	switch n {
	case 0:
		t.crew.Go(func() {
			defer t.remover.Done()
			t.removeAll()
		})
	case maxTrash:
		t.remove(what)
	}
}

func (t *Trash) removeAll() {
	for {
		t.mu.Lock()
		what := t.queue[0]
		t.mu.Unlock()
		t.remove(what)
		t.mu.Lock()
		t.queue = t.queue[1:]
		n := len(t.queue)
		t.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

func (t *Trash) remove(what rubbish) {
	r := remover{unlink: what.unlink, stopped: t.stopped.Load}
	err := r.tree(what.path)
	if err != nil && !errors.Is(err, errStopped) {
		t.log.Error("cannot remove the remains of an input root", zap.Error(err))
	}
}

// Stop leaves the remaining folders to the next process.
func (t *Trash) Stop() { t.stopped.Store(true) }

// Close waits until everything is removed, or Stop was called. What could not be removed before, or
// not be found because the folder was elsewhere, is tried once more. Nobody may call Put at the same
// time.
func (t *Trash) Close() error {
	t.remover.Wait()
	if t.stopped.Load() {
		return nil
	}
	if err := t.Sweep(); err != nil {
		return err
	}
	t.remover.Wait()
	if t.stopped.Load() {
		return nil
	}
	if err := unix.Rmdir(t.dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: t.dir, Err: err}
	}
	return nil
}
