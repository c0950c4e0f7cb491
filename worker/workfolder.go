package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// A workFolder has the files of an action outside its input root: those of its output, and the
// folder that is its /tmp. A position keeps its folder for the next action, and the folder for /tmp
// if the last one left it untouched (folder.Folder has the reason).
type workFolder struct {
	dir  string
	temp *folder.Folder
}

func (f *workFolder) stdout() string { return filepath.Join(f.dir, "stdout") }
func (f *workFolder) stderr() string { return filepath.Join(f.dir, "stderr") }

// makeWorkFolder makes one, which must not be there.
func makeWorkFolder(dir string) (*workFolder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make work folder: %w", err)
	}
	f := &workFolder{dir: dir}
	if err := f.makeTemp(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return f, nil
}

// makeTemp makes the folder for /tmp, which must not be there.
func (f *workFolder) makeTemp() (err error) {
	// As for /tmp: every user that the command becomes can use it.
	own := vfs.Owner{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if f.temp, err = folder.Make(filepath.Join(f.dir, "tmp"), unix.S_ISVTX|0o777, own); err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	return nil
}

// clear prepares the folder for the next action, when the last one has ended, and reports whether
// that worked. Files with output are removed: they may be large, or belong to the store by now.
// Empty ones stay. The folder for /tmp is another one if the last action has used it, as compilers
// do.
func (f *workFolder) clear() bool {
	for _, file := range []string{f.stdout(), f.stderr()} {
		info, err := os.Lstat(file)
		if err == nil && info.Size() > 0 {
			err = os.Remove(file)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return f.temp.Untouched() || folder.RemoveTree(f.temp.Path()) == nil && f.makeTemp() == nil
}

// remove removes it, if there is one.
func (f *workFolder) remove(log *zap.Logger) {
	if f == nil {
		return
	}
	if err := folder.RemoveTree(f.dir); err != nil {
		log.Error("temporary files were not removed", zap.Error(err))
	}
}

// enterWorkFolder gives the action the position's folder, or a new one.
func (r *run) enterWorkFolder(name string) (err error) {
	if r.work, r.a.p.work = r.a.p.work, nil; r.work == nil {
		r.work, err = makeWorkFolder(filepath.Join(r.w.opts.WorkDir, name))
	}
	return err
}

// leaveWorkFolder gives it back to the position, or removes it. A client that watches the command's
// output may continue to read its files: these are then not for another action.
func (r *run) leaveWorkFolder() {
	if r.work != nil && r.vacated && !r.watched && r.work.clear() {
		r.a.p.work = r.work
		return
	}
	r.work.remove(r.a.log)
}
