package follow

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A hostile tree has local directories, and counts the looks at them.
type hostile struct {
	*testing.T
	dirs     map[digest.Digest]*tree.Directory
	contents map[digest.Digest]string
	looks    int
}

func newHostile(t *testing.T) *hostile {
	return &hostile{T: t, dirs: map[digest.Digest]*tree.Directory{}, contents: map[digest.Digest]string{}}
}

func (h *hostile) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	h.looks++
	dir, ok := h.dirs[d]
	return dir, ok
}

// file returns a file with that content.
func (h *hostile) file(name, content string) *repb.FileNode {
	d := digest.Of(digest.SHA256, []byte(content))
	h.contents[d] = content
	return &repb.FileNode{Name: name, Digest: d.Proto()}
}

func (h *hostile) folder(m *repb.Directory) digest.Digest {
	h.Helper()
	d, encoded, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		h.Fatal(err)
	}
	dir, err := tree.Parse(digest.SHA256, encoded)
	if err != nil {
		h.Fatal(err)
	}
	h.dirs[d] = dir
	return d
}

// spec is that of a Follower that requests nothing.
func (h *hostile) spec(root digest.Digest) Spec {
	return Spec{
		Root: root, Source: h, Scans: NewScans(), Request: func([]File) {}, Fetch: func([]digest.Digest) {}, Unmentioned: func(string) {},
		Contents: func(d digest.Digest) ([]byte, bool) { c, ok := h.contents[d]; return []byte(c), ok },
	}
}

// TestSymlinksOfSymlinks: a path with symlinks, whose targets have several components that are
// symlinks again, takes few looks, also when no more folders are kept.
func TestSymlinksOfSymlinks(t *testing.T) {
	const levels, components = 7, 5
	h := newHostile(t)
	m := &repb.Directory{Symlinks: []*repb.SymlinkNode{{Name: "s0", Target: "."}}}
	for i := 1; i <= levels; i++ {
		m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{
			Name: fmt.Sprint("s", i), Target: strings.TrimSuffix(strings.Repeat(fmt.Sprint("s", i-1, "/"), components), "/"),
		})
	}
	root := h.folder(m)
	for _, full := range []bool{false, true} {
		known := newKnownTree(h, root)
		for i := 0; full && i < maxKnown; i++ {
			known.folders[fmt.Sprint("other", i)] = knownFolder{}
		}
		h.looks = 0
		known.Look(fmt.Sprint("s", levels))
		if h.looks > 100*levels*components {
			t.Errorf("full %t: %d looks", full, h.looks)
		}
	}
}

// headerFolders returns a directory with as many empty folders as a command line may name, and the
// words that do.
func (h *hostile) headerFolders() (m *repb.Directory, args []string) {
	m = &repb.Directory{}
	empty := h.folder(&repb.Directory{}).Proto()
	for i := range 256 {
		name := fmt.Sprintf("d%03d", i)
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: empty})
		args = append(args, "-I"+name)
	}
	return m, args
}

// TestGivesUp: mentions that need too many looks are not looked for, and the others that come before
// them are found.
func TestGivesUp(t *testing.T) {
	h := newHostile(t)
	m, args := h.headerFolders()
	var opened []*repb.FileNode
	for i := range 16 {
		var text strings.Builder
		fmt.Fprintf(&text, "#include \"found%02d.h\"\n", i)
		for j := range 100 {
			fmt.Fprintf(&text, "#include <none%d.%d.h>\n", i, j)
		}
		opened = append(opened, h.file(fmt.Sprintf("a%02d.c", i), text.String()))
	}
	m.Files = slices.Clone(opened)
	for i := range opened {
		m.Files = append(m.Files, h.file(fmt.Sprintf("found%02d.h", i), fmt.Sprint("int i", i)))
	}
	spec := h.spec(h.folder(m))
	var found []string
	spec.Request = func(files []File) {
		for _, f := range files {
			found = append(found, f.Path)
		}
	}
	s := newSearch(New(spec))
	s.settled, s.known.looks = true, 1<<17
	s.commanded(h.Context(), &Command{Args: args})
	for _, f := range opened {
		s.opened(t.Context(), f.Name, Lacked)
		s.came(t.Context(), came{h.digestOf(f), cas.Absent})
		s.request()
	}
	if n := len(found); n == 0 || n > 8 { // 100 mentions in 256 folders are a third of what is allowed
		t.Errorf("found are %q", found)
	}
}

// TestEnds: a Follower reads nothing more once its action has ended.
func TestEnds(t *testing.T) {
	h := newHostile(t)
	m := &repb.Directory{}
	for i := range 10 {
		m.Files = append(m.Files, h.file(fmt.Sprintf("a%d.c", i), fmt.Sprintf("#include \"b%d.h\"\n", i)))
	}
	spec := h.spec(h.folder(m))
	ctx, cancel := context.WithCancel(t.Context())
	reads := 0
	spec.Contents = func(digest.Digest) ([]byte, bool) {
		reads++
		cancel()
		return []byte("int x;"), true
	}
	f := New(spec)
	for _, file := range m.Files {
		d, err := digest.FromProto(digest.SHA256, file.Digest)
		if err != nil {
			t.Fatal(err)
		}
		f.Opened(file.Name, Lacked)
		f.Came(d, cas.Absent)
	}
	f.Run(ctx)
	if reads != 1 {
		t.Errorf("%d files are read", reads)
	}
}

// TestLargeDirectories: directories that are large, alone or together, are not requested for
// mentions.
func TestLargeDirectories(t *testing.T) {
	h := newHostile(t)
	m := &repb.Directory{}
	var args []string
	for i := range 40 {
		size := int64(1 << 20)
		if i == 0 {
			size = maxDirectoryBytes + 1
		}
		name := fmt.Sprintf("d%02d", i)
		m.Directories = append(m.Directories, &repb.DirectoryNode{
			Name: name, Digest: &repb.Digest{Hash: fmt.Sprintf("%064x", i+1), SizeBytes: size},
		})
		args = append(args, name+"/file.c")
	}
	spec := h.spec(h.folder(m))
	var bytes int64
	spec.Fetch = func(ds []digest.Digest) {
		for _, d := range ds {
			bytes += d.SizeBytes()
		}
	}
	s := newSearch(New(spec))
	s.commanded(h.Context(), &Command{Args: args})
	s.request()
	if bytes != wantedBytes {
		t.Errorf("%d bytes of directories are requested", bytes)
	}
}

// TestOutside: mentions of files outside of the tree are given up, too, if there are many.
func TestOutside(t *testing.T) {
	h := newHostile(t)
	m, args := h.headerFolders()
	for i := range 3 {
		var text strings.Builder
		for j := range 4000 {
			fmt.Fprintf(&text, "#include <../../../../%d.%d.h>\n", i, j)
		}
		m.Files = append(m.Files, h.file(fmt.Sprintf("a%02d.c", i), text.String()))
	}
	s := newSearch(New(h.spec(h.folder(m))))
	s.commanded(t.Context(), &Command{Args: args})
	for _, f := range m.Files {
		s.opened(t.Context(), f.Name, Lacked)
		s.came(t.Context(), came{h.digestOf(f), cas.Absent})
	}
	if !s.over(t.Context()) {
		t.Errorf("%d of %d looks are left", s.known.looks, freeLooks)
	}
}
