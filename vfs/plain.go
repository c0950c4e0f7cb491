package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/crew"
	"github.com/forerunner-build/forerunner/vfs/copied"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/frame"
	"github.com/forerunner-build/forerunner/vfs/overlay"
)

// maxSpare bounds the frames that are kept for plain roots to come.
const maxSpare = 64

// maxOthers bounds the folders of a frame that a root gets and does not want: to remove some hundred
// would take longer than to make a new frame.
const maxOthers = 8

// plainFolders has the folders of actions whose roots have no mounts.
type plainFolders struct {
	dir   string // they are made in
	drop  bool   // those that an action has touched are not used again; constant after probe
	trash *folder.Trash
	crew  *crew.Crew
	log   *zap.Logger

	stripping sync.WaitGroup

	mu    sync.Mutex
	spare []*frame.Frame // for plain roots to come
	made  int
}

// take returns the spare frame of that owner that fits best, or else a name for a new one.
func (p *plainFolders) take(owner Owner, wanted *frame.Paths) (spare *frame.Frame, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	best, match := -1, -maxOthers-1
	for i, s := range p.spare {
		if s.Owner() != owner {
			continue
		}
		if m := s.Match(wanted); m > match {
			best, match = i, m
		}
	}
	if best >= 0 {
		spare = p.spare[best]
		p.spare = slices.Delete(p.spare, best, best+1)
		return spare, filepath.Dir(spare.Path())
	}
	p.made++
	return nil, filepath.Join(p.dir, strconv.Itoa(p.made))
}

// keep keeps a frame. If there are too many, it removes the one that was kept first.
func (p *plainFolders) keep(f *frame.Frame) error {
	p.mu.Lock()
	p.spare = append(p.spare, f)
	var first *frame.Frame
	if len(p.spare) > maxSpare {
		first = p.spare[0]
		p.spare = slices.Delete(p.spare, 0, 1)
	}
	p.mu.Unlock()
	if first == nil {
		return nil
	}
	return p.trash.Put(filepath.Dir(first.Path()))
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

// probe finds out whether folders can be used again. There are none yet.
func (p *plainFolders) probe() error {
	if p.drop {
		return nil
	}
	p.drop = true
	if err := p.make(); err != nil {
		return err
	}
	forgets, err := frame.Forgets(p.dir)
	p.drop = !forgets
	return errors.Join(err, folder.RemoveTree(p.dir))
}

// remove removes all folders. No root may have one any more.
func (p *plainFolders) remove() error {
	p.stripping.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == 0 {
		return nil
	}
	return p.trash.Put(p.dir)
}

// plainLayer is a root that needs no mount, because it has no inputs, or copies of them. It is a
// frame, which another root gets after the action.
type plainLayer struct {
	all    *plainFolders
	owner  Owner
	around ownFolder // other users cannot enter it
	frame  *frame.Frame
	copies *copied.Root // nil: it has no inputs
}

var _ upperLayer = (*plainLayer)(nil)

// copyInputs fills the root with copies of t, whose reads it reports.
func (l *plainLayer) copyInputs(c *copied.Copier, t *copied.Tree, read func(path string, e tree.Entry)) (err error) {
	if l.copies, err = c.Copy(t, l.frame, read); err != nil {
		return err
	}
	return l.frame.Touch(t.Has)
}

// showEmpty is show for a root without inputs.
func (l *plainLayer) showEmpty(folders []string) error {
	if err := l.show(folders); err != nil {
		return err
	}
	return l.frame.Touch(func(string) bool { return false })
}

// show finds a frame of the owner, in a folder that other users cannot enter. It has no other folders
// than those that are wanted, but may lack some.
func (l *plainLayer) show(folders []string) error {
	wanted := frame.PathsOf(folders)
	for {
		var name string
		l.frame, name = l.all.take(l.owner, wanted)
		l.around = ownFolder{path: name}
		if l.frame == nil {
			return l.make(name, wanted)
		}
		l.around.state = folderMade
		err := l.frame.Fit(wanted)
		if err == nil {
			return nil
		}
		l.all.log.Warn("the folders of an input root cannot be used again", zap.Error(err))
		if err := l.drop(); err != nil {
			return err
		}
	}
}

// make makes a frame, where there is nothing yet.
func (l *plainLayer) make(name string, wanted *frame.Paths) error {
	err := l.all.make()
	if err == nil {
		err = l.around.make(l.owner)
	}
	if err == nil {
		l.frame, err = frame.Make(string(overlay.UpperIn(name)), l.owner)
	}
	if err == nil {
		err = l.frame.Fit(wanted)
	}
	return err
}

// hide passes the frame on to another root, if vacated says that no process uses it, or removes it.
func (l *plainLayer) hide(vacated bool) error {
	if l.copies != nil {
		l.copies.Leave()
	}
	switch {
	case l.frame == nil || !vacated:
		return l.drop()
	case l.copies == nil && l.frame.Untouched():
		return l.all.keep(l.frame)
	case l.all.drop:
		return l.drop()
	}
	l.all.stripping.Add(1)
	l.all.crew.Go(func() {
		defer l.all.stripping.Done()
		end := l.drop
		if l.frame.Strip(l.all.trash.Put) {
			end = func() error { return l.all.keep(l.frame) }
		}
		if err := end(); err != nil {
			l.all.log.Error("cannot remove the remains of an input root", zap.Error(err))
		}
	})
	return nil
}

// drop removes the folder.
func (l *plainLayer) drop() error { return l.around.drop(l.all.trash) }

// Path implements upperLayer.
func (l *plainLayer) Path() string { return l.frame.Path() }

// Base implements upperLayer.
func (l *plainLayer) Base() string { return l.frame.Path() }

// Top opens the topmost folder.
func (l *plainLayer) Top() (*overlay.Dir, error) { return overlay.Upper(l.frame.Path()).Top() }
