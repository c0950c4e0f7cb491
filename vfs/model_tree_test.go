package vfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/image"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// inputTime is the time of inputs that have none of their own.
func inputTime() time.Time { return time.Unix(tree.DefaultMTime, 0) }

// modelTree is a random input tree.
type modelTree struct {
	name    string
	kind    Kind
	content string // of a file, or where a symlink points
	mode    uint32
	mtime   time.Time
	entries []*modelTree
}

// makeTree makes a random directory with content, about depth levels deep.
func makeTree(r *rand.Rand, name string, depth int) *modelTree {
	dir := &modelTree{name: name, kind: Directory, mode: 0o755, mtime: inputTime()}
	for _, n := range fewNames {
		switch at := r.IntN(12); {
		case at < 4 && depth > 0:
			dir.entries = append(dir.entries, makeTree(r, n, depth-1))
		case at < 8:
			dir.entries = append(dir.entries, makeFile(r, n))
		case at == 8:
			target := [...]string{"a", "/f", "../g", ".", "nowhere", "/a/b"}[r.IntN(6)]
			dir.entries = append(dir.entries, &modelTree{
				name: n, kind: Symlink, content: target, mode: 0o777, mtime: inputTime(),
			})
		}
	}
	return dir
}

func makeFile(r *rand.Rand, name string) *modelTree {
	size := r.IntN(1 << 14)
	if r.IntN(5) == 0 {
		size = r.IntN(1<<18) &^ 4095
	}
	b := make([]byte, size)
	if r.IntN(6) > 0 { // otherwise zeros, which a copy could turn into a hole
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
	f := &modelTree{name: name, kind: File, content: string(b), mode: 0o444, mtime: inputTime()}
	if r.IntN(2) == 0 {
		f.mode = [...]uint32{0o644, 0o755, 0o600, 0o555, 0}[r.IntN(5)]
	}
	if r.IntN(3) == 0 {
		f.mtime = time.Unix(1_100_000_000+int64(r.IntN(1000)), int64(r.IntN(1e9)))
	}
	return f
}

// newFile and newFolder are inputs without properties.
func newFile(name string) *modelTree {
	return &modelTree{name: name, kind: File, content: "content of " + name, mode: 0o444, mtime: inputTime()}
}

func newFolder(name string) *modelTree {
	return &modelTree{name: name, kind: Directory, mode: 0o755, mtime: inputTime()}
}

// widen adds a folder that makes the directory large enough for a metadata image of its own.
func (m *modelTree) widen() {
	wide := newFolder("wide")
	for i := range image.MinEntries {
		wide.entries = append(wide.entries, newFile(fmt.Sprint("w", i)))
	}
	m.entries = append(m.entries, wide)
}

// folders are the directories in m, at least one.
func (m *modelTree) folders() (list []*modelTree) {
	for _, e := range m.entries {
		if e.kind == Directory {
			list = append(list, e)
		}
	}
	if len(list) == 0 {
		list = append(list, newFolder("x"))
		m.entries = append(m.entries, list...)
	}
	return list
}

// own is a file that other roots have with another content.
const own = "own"

// other is the tree of another root, number n: its files called own have another content.
func (m *modelTree) other(n int) *modelTree {
	o := *m
	o.entries = nil
	for _, e := range m.entries {
		o.entries = append(o.entries, e.other(n))
	}
	if o.kind == File && o.name == own {
		o.content = fmt.Sprint("content of another, ", n)
	}
	return &o
}

// widenFolders makes each folder in the root large enough for an image, but not the root.
func (m *modelTree) widenFolders() {
	for _, dir := range m.folders() {
		dir.widen()
	}
	m.entries = append(m.entries, newFile(own))
}

// widenNested makes the folders of folders large enough, but not these.
func (m *modelTree) widenNested() {
	for _, dir := range m.folders() {
		dir.widenFolders()
	}
	m.entries = append(m.entries, newFile(own))
}

// widenTogether makes the folders in the root large enough for one image of all of them.
func (m *modelTree) widenTogether() {
	for _, name := range []string{"y", "z"} { // more than one
		m.entries = append(m.entries, newFolder(name))
	}
	folders := m.folders()
	for _, dir := range folders {
		for i := range image.MinEntries/len(folders) + 1 {
			dir.entries = append(dir.entries, newFile(fmt.Sprint("w", i)))
		}
	}
	m.entries = append(m.entries, newFile(own))
}

// paths lists all that is below the tree's root.
func (m *modelTree) paths(dir string) (list []string) {
	for _, e := range m.entries {
		p := path.Join(dir, e.name)
		list = append(append(list, p), e.paths(p)...)
	}
	return list
}

// store puts the tree into a Source.
func (m *modelTree) store(t testing.TB, src *vfstest.Source) digest.Digest {
	t.Helper()
	d := &repb.Directory{}
	for _, e := range m.entries {
		properties := &repb.NodeProperties{Mtime: timestamppb.New(e.mtime), UnixMode: wrapperspb.UInt32(e.mode)}
		switch e.kind {
		case File:
			d.Files = append(d.Files, &repb.FileNode{
				Name: e.name, Digest: src.Blob(t, e.content).Proto(), NodeProperties: properties,
			})
		case Symlink:
			d.Symlinks = append(d.Symlinks, &repb.SymlinkNode{Name: e.name, Target: e.content, NodeProperties: properties})
		case Directory:
			d.Directories = append(d.Directories, &repb.DirectoryNode{Name: e.name, Digest: e.store(t, src).Proto()})
		}
	}
	return src.Add(t, d)
}

// write puts what is in the tree into a folder.
func (m *modelTree) write(dir string) error {
	for _, e := range m.entries {
		p := filepath.Join(dir, e.name)
		var err error
		switch e.kind {
		case File:
			err = errors.Join(os.WriteFile(p, []byte(e.content), 0o600), os.Chmod(p, os.FileMode(e.mode)))
		case Symlink:
			err = os.Symlink(e.content, p)
		case Directory:
			err = errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o755), e.write(p))
		}
		at, timeErr := unix.TimeToTimespec(e.mtime)
		err = errors.Join(err, timeErr, unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
		if err != nil {
			return err
		}
	}
	return nil
}

// inSeconds has all times of the tree be whole seconds.
func (t *modelTree) inSeconds() {
	t.mtime = t.mtime.Truncate(time.Second)
	for _, e := range t.entries {
		e.inSeconds()
	}
}
