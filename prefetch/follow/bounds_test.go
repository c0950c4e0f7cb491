package follow

import (
	"fmt"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// sized returns the i-th digest of that size, of a content that nobody has.
func (h *hostile) sized(i int, size int64) digest.Digest {
	h.Helper()
	d, err := digest.Parse(digest.SHA256, fmt.Sprintf("%064x", i+1), size)
	if err != nil {
		h.Fatal(err)
	}
	return d
}

// sources returns a folder of that many files of that size, which all have the same content.
func (h *hostile) sources(files int, size int64, content string) *repb.Directory {
	m := &repb.Directory{}
	for i := range files {
		d := h.sized(i, size)
		h.contents[d] = content
		m.Files = append(m.Files, &repb.FileNode{Name: fmt.Sprintf("a%04d.c", i), Digest: d.Proto()})
	}
	return m
}

// open has the action open files that were absent.
func (h *hostile) open(s *search, files []*repb.FileNode) {
	for _, f := range files {
		s.opened(h.Context(), f.Name, Lacked)
		s.came(h.Context(), came{h.digestOf(f), cas.Absent})
	}
}

// TestLongPaths: paths that are longer than those of Linux are not looked at.
func TestLongPaths(t *testing.T) {
	long := strings.Repeat("a/", 1<<16)
	h := newHostile(t)
	m := &repb.Directory{Files: []*repb.FileNode{h.file("a.c", "int a;")}}
	m.Symlinks = []*repb.SymlinkNode{{Name: "here", Target: "."}, {Name: "long", Target: strings.Repeat("here/", 800) + "long"}}
	s, _ := h.search(h.folder(m))
	for _, directory := range []string{long, "long"} {
		s.commanded(t.Context(), &Command{Args: []string{"cc", "a.c"}, WorkingDirectory: directory})
	}
	s.of.Opened(long+"a.c", Lacked)
	if used := freeLooks - s.known.looks; used > 20_000 || len(s.of.take().opened) > 0 {
		t.Errorf("%d looks", used)
	}
}

// TestDeepFolders: the paths of all folders of a deep tree take little memory.
func TestDeepFolders(t *testing.T) {
	h := newHostile(t)
	below := h.folder(&repb.Directory{})
	for range 1000 {
		below = h.folder(&repb.Directory{Directories: []*repb.DirectoryNode{{Name: strings.Repeat("d", 200), Digest: below.Proto()}}})
	}
	known := newKnownTree(h, below)
	var bytes int
	for _, at := range known.Holding(strings.Repeat("d", 200)) {
		bytes += len(at)
	}
	for _, f := range known.holders.all {
		bytes += len(f.at)
	}
	if bytes > 1<<20 || len(known.holders.all) < 10 {
		t.Errorf("%d folders have paths of %d bytes", len(known.holders.all), bytes)
	}
}

// TestReadsLittle: however many files are local, few bytes of them are read because others mention
// them.
func TestReadsLittle(t *testing.T) {
	h := newHostile(t)
	m := h.sources(4000, maxFileBytes, "int a;"+strings.Repeat(" ", maxFileBytes-6))
	spec := h.spec(h.folder(m))
	var bytes int64
	contents := spec.Contents
	spec.Contents = func(d digest.Digest) ([]byte, bool) {
		bytes += d.SizeBytes()
		return contents(d)
	}
	s := newSearch(New(spec))
	var words []string
	for _, f := range m.Files[1:] {
		words = append(words, f.Name)
	}
	s.commanded(t.Context(), &Command{Args: words})
	h.open(s, m.Files[:1])
	for s.request(); len(s.likely.found) > 0; s.request() {
		before := s.likely.unread
		for _, w := range s.asked {
			if w.stage == requested {
				s.ended(t.Context(), ended{files: []File{w.File}})
			}
		}
		if s.likely.unread == before {
			break
		}
	}
	if most := int64(freeLooks * lookBytes); bytes > most+maxFileBytes {
		t.Errorf("%d bytes are read, the most is %d", bytes, most)
	}
}

// TestMentionsAreLooks: mentions count as looks, also if nothing has to be looked at for them.
func TestMentionsAreLooks(t *testing.T) {
	var text strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&text, "#include <a%04d.c>\n", i)
	}
	h := newHostile(t)
	m := h.sources(20, 100_000, text.String())
	for about, args := range map[string][]string{"found before": {"cc", "-I."}, "that wait for directories": {"cc"}} {
		s, _ := h.search(h.folder(m))
		s.commanded(t.Context(), &Command{Args: args})
		s.known.looks = 40_000
		h.open(s, m.Files)
		for range 20 {
			s.again(t.Context())
		}
		if !s.over(t.Context()) {
			t.Errorf("%s: %d looks are left", about, s.known.looks)
		}
	}
}

// TestRereadsFewDirectories: directories that are not kept are read again, but not often.
func TestRereadsFewDirectories(t *testing.T) {
	h := newHostile(t)
	large := &repb.Directory{}
	empty := digest.SHA256.Empty().Proto()
	for i := range 30_000 {
		large.Files = append(large.Files, &repb.FileNode{Name: fmt.Sprintf("f%05d", i), Digest: empty})
	}
	dir := h.dirs[h.folder(large)]
	m := &repb.Directory{}
	var args []string
	for i := range 100 {
		d := h.sized(i, 3<<20)
		h.dirs[d] = dir
		name := fmt.Sprintf("d%02d", i)
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: d.Proto()})
		args = append(args, "-I"+name)
	}
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "#include <none%d.h>\n", i)
	}
	m.Files = h.sources(1, 100_000, text.String()).Files
	s, _ := h.search(h.folder(m))
	s.settled = true
	s.commanded(t.Context(), &Command{Args: args})
	h.looks = 0
	h.open(s, m.Files)
	if most := freeLooks * lookBytes / (3 << 20); h.looks > most+10 {
		t.Errorf("directories were read %d times", h.looks)
	}
}

// TestSmallFiles: mentioned files are few, also if they are small.
func TestSmallFiles(t *testing.T) {
	h := newHostile(t)
	var text strings.Builder
	m := h.sources(4000, 1, "")
	for _, f := range m.Files {
		fmt.Fprintf(&text, "#include \"%s\"\n", f.Name)
	}
	m.Files = append(m.Files, h.file("all.c", text.String()))
	s, found := h.search(h.folder(m))
	h.open(s, m.Files[len(m.Files)-1:])
	s.request()
	if n := len(*found); n == 0 || n > FreeBytes/leastBytes {
		t.Errorf("%d files are requested", n)
	}
}

// TestFailedCalls: files of calls that fail count as if they had come: parts of them may have.
func TestFailedCalls(t *testing.T) {
	h := newHostile(t)
	m, all := h.wide(60)
	m.Files = append([]*repb.FileNode{h.file("all.h", all)}, m.Files...)
	s, found := h.search(h.folder(m))
	h.open(s, m.Files[:1])
	s.request()
	before := len(*found)
	var failed []File
	for _, w := range s.asked {
		if w.stage == requested {
			failed = append(failed, w.File)
		}
	}
	s.ended(t.Context(), ended{files: failed, failed: true})
	s.request()
	if got := len(*found); before == 0 || got > before {
		t.Errorf("%d files are requested, and %d more when these have failed", before, got-before)
	}
}

// TestManyFetched: files that came count, too, when so many have come that not all are remembered.
func TestManyFetched(t *testing.T) {
	h := newHostile(t)
	m, all := h.wide(60)
	m.Files = append([]*repb.FileNode{h.file("all.h", all)}, m.Files...)
	s, found := h.search(h.folder(m))
	for i := range maxMentioned {
		s.ours[h.sized(i, 1)] = struct{}{}
	}
	h.open(s, m.Files[:1])
	s.request()
	before := len(*found)
	var e ended
	for _, w := range s.asked {
		if w.stage == requested {
			e.files, e.fetched = append(e.files, w.File), append(e.fetched, w.Digest)
		}
	}
	s.ended(t.Context(), e)
	s.request()
	if got := len(*found); before == 0 || got > before {
		t.Errorf("%d files are requested, and %d more when these have come", before, got-before)
	}
}

// TestSameContent: files with the same content mention different files, each those beside it.
func TestSameContent(t *testing.T) {
	h := newHostile(t)
	m := &repb.Directory{}
	for _, name := range []string{"a", "b"} {
		d := h.folder(&repb.Directory{Files: []*repb.FileNode{h.file("index.js", "require('./lib')\n"), h.file("lib.js", name)}})
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: d.Proto()})
	}
	s, found := h.search(h.folder(m))
	s.warm = false
	s.commanded(t.Context(), &Command{Args: []string{"node", "a/index.js", "b/index.js"}})
	s.request()
	d, ok := s.known.file("a/index.js")
	if !ok {
		t.Fatal("there is no source")
	}
	s.ended(t.Context(), ended{files: []File{{Path: "a/index.js", Digest: d}, {Path: "b/index.js", Digest: d}}, fetched: []digest.Digest{d}})
	s.request()
	if len(*found) != 4 {
		t.Errorf("%q are requested", *found)
	}
}

// TestBoundedPaths: paths of opened files take a bounded amount of memory, and so do the turns of
// files that are mentioned again and again.
func TestBoundedPaths(t *testing.T) {
	h := newHostile(t)
	s, _ := h.search(h.folder(&repb.Directory{}))
	folder := strings.Repeat("x", 4000)
	for i := range 10_000 {
		s.opened(t.Context(), fmt.Sprint(folder, i), Lacked)
	}
	if n := len(s.read); n == 0 || n > roomForPaths/len(folder) {
		t.Errorf("%d paths are kept", n)
	}
	var some turns
	for i := range 2 * maxTurns {
		some.add(wish{order: order(fmt.Sprintf("%08d", 2*maxTurns-i))})
	}
	if len(some) > maxTurns {
		t.Errorf("%d turns are kept", len(some))
	}
}
