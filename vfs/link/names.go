package link

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// names are the folders in which a root has names of its inputs, and the files there that are no
// links, in their state when they were made. Nothing should change them below an overlay; if a
// process does so all the same, as by another file under the name of an input, a change time
// changes.
type names []nameAt

type nameAt struct {
	path    string
	changed unix.Timespec
}

// note adds what has been made at path.
func (n *names) note(path string) error {
	changed, err := changeTime(path)
	if err == nil {
		*n = append(*n, nameAt{path, changed})
	}
	return err
}

// noteAbove adds the folders between base and path, base too.
func (n *names) noteAbove(base, path string) error {
	for path != "" && path != "." {
		path = filepath.Dir(path)
		if err := n.note(filepath.Join(base, path)); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error that wraps vouch.ErrDamaged and names one that was changed since.
func (n names) check() error {
	for _, at := range n {
		if now, err := changeTime(at.path); err != nil || now != at.changed {
			return fmt.Errorf("%w: %s was changed by something outside of the sandbox", vouch.ErrDamaged, at.path)
		}
	}
	return nil
}

func changeTime(path string) (unix.Timespec, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return unix.Timespec{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Ctim, nil
}
