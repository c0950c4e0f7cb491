package vfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// ErrInvalidDirectory is wrapped by errors about a Directory that REv2 does not
// allow, or that no file system can show.
var ErrInvalidDirectory = errors.New("invalid directory")

const maxName = 255 // bytes; the limit of ext4, xfs, btrfs and tmpfs alike

// defaultTime is the time of every entry that has none: 2000-01-01 00:00 UTC.
var defaultTime = time.Unix(946684800, 0)

// entry is what a Directory says about one name.
type entry struct {
	name   string
	kind   Kind
	digest digest.Digest // of a file's bytes or of a Directory; zero for a symlink
	exec   bool
	target string // of a symlink
	perm   uint32
	mtime  time.Time
}

// directory gives a Directory message an order and an index. The message is
// shared and sorted, so nothing of it is copied: one entry is decoded at a time.
type directory struct {
	fn  digest.Function
	msg *repb.Directory
}

// newDirectory checks the names, which must be in order and unique.
// It trusts the Source no further than the kernel can bear.
func newDirectory(fn digest.Function, m *repb.Directory) (*directory, error) {
	d := &directory{fn, m}
	if m == nil {
		return nil, fmt.Errorf("%w: there is none", ErrInvalidDirectory)
	}
	if err := checkNames(m.Directories); err != nil {
		return nil, err
	}
	if err := checkNames(m.Files); err != nil {
		return nil, err
	}
	if err := checkNames(m.Symlinks); err != nil {
		return nil, err
	}
	for _, s := range m.Symlinks {
		if _, ok := search(m.Files, s.Name); ok {
			return nil, fmt.Errorf("%w: %.300q is a file and a symlink", ErrInvalidDirectory, s.Name)
		}
		if _, ok := search(m.Directories, s.Name); ok {
			return nil, fmt.Errorf("%w: %.300q is a directory and a symlink", ErrInvalidDirectory, s.Name)
		}
	}
	for _, s := range m.Directories {
		if _, ok := search(m.Files, s.Name); ok {
			return nil, fmt.Errorf("%w: %.300q is a file and a directory", ErrInvalidDirectory, s.Name)
		}
	}
	return d, nil
}

type named interface{ GetName() string }

func search[N named](list []N, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(n N, name string) int {
		return strings.Compare(n.GetName(), name)
	})
}

func checkNames[N named](list []N) error {
	last := ""
	for _, n := range list {
		name := n.GetName()
		if err := checkName(name); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalidDirectory, err)
		}
		if name == last {
			return fmt.Errorf("%w: %q is there twice", ErrInvalidDirectory, name)
		}
		if name < last {
			return fmt.Errorf("%w: %q comes after %q", ErrInvalidDirectory, name, last)
		}
		last = name
	}
	return nil
}

// checkName refuses what cannot be a file's name.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("name is empty")
	case name == "." || name == "..":
		return fmt.Errorf("name %q is reserved", name)
	case strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("name %.300q contains a slash or a NUL", name)
	case len(name) > maxName:
		return fmt.Errorf("name %.40q… has %d bytes, the most is %d", name, len(name), maxName)
	}
	return nil
}

func (d *directory) len() int {
	return len(d.msg.Directories) + len(d.msg.Files) + len(d.msg.Symlinks)
}

// at decodes entry i: the directories, then the files, then the symlinks.
func (d *directory) at(i int) (entry, error) {
	if i < len(d.msg.Directories) {
		return d.child(d.msg.Directories[i])
	}
	i -= len(d.msg.Directories)
	if i < len(d.msg.Files) {
		return d.file(d.msg.Files[i])
	}
	return d.symlink(d.msg.Symlinks[i-len(d.msg.Files)])
}

// find decodes the entry of that name.
func (d *directory) find(name string) (e entry, ok bool, err error) {
	if i, ok := search(d.msg.Files, name); ok {
		e, err = d.file(d.msg.Files[i])
		return e, true, err
	}
	if i, ok := search(d.msg.Directories, name); ok {
		e, err = d.child(d.msg.Directories[i])
		return e, true, err
	}
	if i, ok := search(d.msg.Symlinks, name); ok {
		e, err = d.symlink(d.msg.Symlinks[i])
		return e, true, err
	}
	return entry{}, false, nil
}

func (d *directory) child(n *repb.DirectoryNode) (entry, error) {
	e := entry{name: n.Name, kind: Directory, perm: 0o755, mtime: defaultTime}
	var err error
	if e.digest, err = digest.FromProto(d.fn, n.Digest); err != nil {
		return e, fmt.Errorf("%w: directory %q: %w", ErrInvalidDirectory, n.Name, err)
	}
	return e, nil
}

func (d *directory) file(n *repb.FileNode) (entry, error) {
	e := entry{name: n.Name, kind: File, exec: n.IsExecutable, perm: 0o444}
	if e.exec {
		e.perm = 0o555
	}
	if m := n.NodeProperties.GetUnixMode(); m != nil {
		e.perm = m.Value & 0o777
	}
	e.mtime = timeOf(n.NodeProperties)
	var err error
	if e.digest, err = digest.FromProto(d.fn, n.Digest); err != nil {
		return e, fmt.Errorf("%w: file %q: %w", ErrInvalidDirectory, n.Name, err)
	}
	return e, nil
}

func (d *directory) symlink(n *repb.SymlinkNode) (entry, error) {
	e := entry{name: n.Name, kind: Symlink, target: n.Target, perm: 0o777}
	e.mtime = timeOf(n.NodeProperties)
	if n.Target == "" || len(n.Target) >= unix.PathMax || strings.ContainsRune(n.Target, 0) {
		return e, fmt.Errorf("%w: symlink %q: target %.300q is empty, too long or contains a NUL",
			ErrInvalidDirectory, n.Name, n.Target)
	}
	return e, nil
}

func timeOf(p *repb.NodeProperties) time.Time {
	if t := p.GetMtime(); t != nil && t.IsValid() {
		return t.AsTime()
	}
	return defaultTime
}
