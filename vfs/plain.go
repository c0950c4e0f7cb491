package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/copied"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/overlay"
)

// maxSpare bounds the folders that are kept for plain roots to come.
const maxSpare = 64

// plainFolders has the folders of actions whose roots have no mounts.
type plainFolders struct {
	dir   string // they are made in
	trash *folder.Trash

	mu    sync.Mutex
	spare []*folder.Folder // for plain roots to come
	made  int
}

// take returns a spare folder of that owner, or else a name for a new one.
func (p *plainFolders) take(owner Owner) (spare *folder.Folder, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.spare, func(s *folder.Folder) bool { return s.Owner() == owner })
	if i >= 0 {
		spare = p.spare[i]
		p.spare = slices.Delete(p.spare, i, i+1)
		return spare, filepath.Dir(spare.Path())
	}
	p.made++
	return nil, filepath.Join(p.dir, strconv.Itoa(p.made))
}

// keep keeps a folder, unless there are enough.
func (p *plainFolders) keep(f *folder.Folder) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.spare) >= maxSpare {
		return false
	}
	p.spare = append(p.spare, f)
	return true
}

// make makes the folder of all of them, but not those above, which exist unless somebody took them
// away with all that is in them. What is made in it has no access control list of those.
func (p *plainFolders) make() error {
	err := os.Mkdir(p.dir, 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err == nil {
		err = unix.Removexattr(p.dir, "system.posix_acl_default")
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			err = nil
		}
	}
	return err
}

// remove removes all folders. No root may have one any more.
func (p *plainFolders) remove() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == 0 {
		return nil
	}
	return p.trash.Put(p.dir)
}

// plainLayer is a root that needs no mount, because it has no inputs, or copies of them. It is a
// folder, which another root gets after an action without inputs that left it untouched.
type plainLayer struct {
	all    *plainFolders
	owner  Owner
	around ownFolder // other users cannot enter it
	folder *folder.Folder
	copies *copied.Root // nil: it has no inputs
}

var _ upperLayer = (*plainLayer)(nil)

// copyInputs fills the root with copies of t, whose reads it reports.
func (l *plainLayer) copyInputs(c *copied.Copier, t *copied.Tree, read func(path string, e tree.Entry)) (err error) {
	l.copies, err = c.Copy(t, l.folder.Path(), l.owner, read)
	return err
}

// show finds an empty folder of the owner, in one that other users cannot enter.
func (l *plainLayer) show() error {
	var name string
	l.folder, name = l.all.take(l.owner)
	l.around.path = name
	if l.folder != nil {
		l.around.state = folderMade
		return nil
	}
	err := l.all.make()
	if err == nil {
		err = l.around.make(l.owner)
	}
	if err == nil {
		l.folder, err = folder.Make(string(overlay.UpperIn(name)), 0o755, l.owner)
	}
	return err
}

// hide passes the folder on to another root, if vacated says that no process uses it, or removes
// it.
func (l *plainLayer) hide(vacated bool) error {
	if l.copies != nil {
		l.copies.Leave()
	} else if l.folder != nil && vacated && l.folder.Untouched() && l.all.keep(l.folder) {
		return nil
	}
	return l.around.drop(l.all.trash)
}

// Path implements upperLayer.
func (l *plainLayer) Path() string { return l.folder.Path() }

// Base implements upperLayer.
func (l *plainLayer) Base() string { return l.folder.Path() }

// Top opens the topmost folder.
func (l *plainLayer) Top() (*overlay.Dir, error) { return overlay.Upper(l.folder.Path()).Top() }
