package link

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// Bare is a layer that the action sees directly: it creates, renames and removes files beside the
// inputs. If it may write to an input, its writes reach all roots that share it. Intact detects
// that.
type Bare struct {
	*Layer
	directory func(digest.Digest) (*tree.Directory, error)
}

// NewBare returns the layer l as the action's view. It reads directories once more, to recognize
// symlinks that are inputs.
func NewBare(l *Layer, directory func(digest.Digest) (*tree.Directory, error)) Bare {
	return Bare{l, directory}
}

// Path returns the path of the layer.
func (l Bare) Path() string { return l.own.base }

// Intact returns an error that wraps ErrInputChanged and names the inputs that differ from their
// links.
func (l Bare) Intact() error {
	var changed []string
	for _, at := range l.own.byIno {
		if !at.intact() {
			l.store.copies.spoil(at.sharedFile)
			changed = append(changed, at.path)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	if len(changed) > maxNamed {
		changed = append(changed[:maxNamed], "and more")
	}
	return fmt.Errorf("%w, by this command or another that shares it (inputs are hard links here, "+
		"without an overlayfs to keep them apart): %s", ErrInputChanged, strings.Join(changed, ", "))
}

// Base returns the path of the layer, which is also the folder of written files.
func (l Bare) Base() string { return l.own.base }

// A Dir is an open folder of the action's view. Lookups in it cost the same at any depth: it goes
// from descriptor to descriptor, a path may exceed the kernel's limit, and no symlink is followed.
// It belongs to one goroutine, which closes it.
type Dir struct {
	bare  Bare
	dir   int
	path  string     // of the folder; empty for the top
	input tree.Entry // that has this path; zero if there is none
}

// Top opens the topmost folder.
func (l Bare) Top() (*Dir, error) {
	dir, err := unix.Open(l.own.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{bare: l, dir: dir, input: tree.Entry{Kind: tree.Dir, Digest: l.root}}, nil
}

// Enter opens the subfolder with that name.
func (p *Dir) Enter(name string) (*Dir, error) {
	dir, err := unix.Openat(p.dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{bare: p.bare, dir: dir, path: p.below(name), input: p.find(name)}, nil
}

// Close closes the folder. It may be called once.
func (p *Dir) Close() { _ = unix.Close(p.dir) }

func (p *Dir) below(name string) string {
	if p.path == "" {
		return name
	}
	return p.path + "/" + name
}

// find returns the input of this name, zero if there is none.
func (p *Dir) find(name string) tree.Entry {
	if p.input.Kind != tree.Dir {
		return tree.Entry{}
	}
	d, err := p.bare.directory(p.input.Digest)
	if err != nil {
		return tree.Entry{}
	}
	e, _ := d.Find(name)
	return e
}

// Unchanged recognizes files by their inode, even if they were moved, and symlinks by their path.
// It does not recognize directories.
func (p *Dir) Unchanged(name string) (in tree.Entry, from string, ok bool) {
	var st unix.Stat_t
	if unix.Fstatat(p.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return in, "", false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		at, ok := p.bare.own.byIno[st.Ino]
		if !ok || inodeOf(&st) != at.as {
			return in, "", false
		}
		return tree.Entry{Kind: tree.File, Digest: at.key.digest, Executable: st.Mode&0o111 != 0}, at.path, true
	case unix.S_IFLNK:
		e := p.find(name)
		return e, p.below(name), e.Kind == tree.Symlink && folder.LeadsTo(p.dir, name, e.Target)
	}
	return in, "", false
}

// Written returns a path, valid until Close, of a file with one name: an input has another one in
// the Store.
func (p *Dir) Written(name string) (string, bool) { return folder.FileOfOneName(p.dir, name) }
