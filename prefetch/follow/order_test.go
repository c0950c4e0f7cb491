package follow

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestOpenedFirst: what an opened file mentions does not wait behind what unopened files mention,
// although these have used up their credit.
func TestOpenedFirst(t *testing.T) {
	h := newHostile(t)
	m, wide := h.wide(40)
	early := h.file("early.h", wide+"#include \"shared.h\"\n")
	late := h.file("late.h", "#include \"shared.h\"\n#include \"next.h\"\n")
	both := h.file("both.h", "#include \"early.h\"\n#include \"late.h\"\n")
	m.Files = append([]*repb.FileNode{both, early, late, h.file("next.h", "int next;"), h.file("shared.h", "int shared;")}, m.Files...)
	s, found := h.search(h.folder(m))
	var ds []digest.Digest
	for _, f := range []*repb.FileNode{both, early, late} {
		d := h.digestOf(f)
		s.scan(t.Context(), f.Name, d)
		ds = append(ds, d)
	}
	s.request()
	if slices.Contains(*found, "next.h") || len(*found) < 10 {
		t.Fatalf("the credit is not used up by %q", *found)
	}
	s.opened(t.Context(), "late.h", Lacked)
	s.came(t.Context(), came{ds[2], cas.Absent})
	s.request()
	for _, want := range []string{"next.h", "shared.h"} {
		if !slices.Contains(*found, want) {
			t.Errorf("%s is not requested", want)
		}
	}
	if s.likely.unread > FreeBytes {
		t.Errorf("%d bytes are unread", s.likely.unread)
	}
}

// wide returns a folder of that many files of 200 kB, and a header that includes all of them.
func (h *hostile) wide(files int) (m *repb.Directory, header string) {
	m = &repb.Directory{}
	for i := range files {
		name := fmt.Sprintf("wide%02d.h", i)
		header += fmt.Sprintf("#include \"%s\"\n", name)
		m.Files = append(m.Files, h.file(name, fmt.Sprint(i, strings.Repeat("x", 200_000))))
	}
	return m, header
}

// search returns a search below root, and the paths that it requests.
func (h *hostile) search(root digest.Digest) (s *search, found *[]string) {
	found = new([]string)
	spec := h.spec(root)
	spec.Request = func(files []File) {
		for _, f := range files {
			*found = append(*found, f.Path)
		}
	}
	return newSearch(New(spec)), found
}

// digestOf returns the digest of a file of h.
func (h *hostile) digestOf(f *repb.FileNode) digest.Digest {
	h.Helper()
	d, err := digest.FromProto(digest.SHA256, f.Digest)
	if err != nil {
		h.Fatal(err)
	}
	return d
}

// TestGlance: what a doubtful file mentions is requested when the file has come, and what that
// mentions when the action opens the doubtful file.
func TestGlance(t *testing.T) {
	h := newHostile(t)
	files := map[string]digest.Digest{}
	m := &repb.Directory{}
	for _, f := range []*repb.FileNode{
		h.file("deep.py", "import deeper\n"), h.file("deeper.py", "import deepest\n"), h.file("deepest.py", ""),
		h.file("lazy.py", "import deep\n"), h.file("main.py", "def f():\n    import lazy\n"),
	} {
		files[f.Name] = h.digestOf(f)
		m.Files = append(m.Files, f)
	}
	var found []File
	spec := h.spec(h.folder(m))
	spec.Request = func(files []File) { found = append(found, files...) }
	s := newSearch(New(spec))
	s.settled = true
	want := func(what string, paths ...string) {
		t.Helper()
		s.catchUp(t.Context())
		s.request()
		var got []string
		for _, f := range found {
			got = append(got, f.Path)
		}
		if !slices.Equal(got, paths) {
			t.Errorf("%s: %q are requested, want %q", what, got, paths)
		}
	}
	arrive := func(name string) {
		s.ended(t.Context(), ended{[]File{{Path: name, Digest: files[name], Doubtful: true}}, []digest.Digest{files[name]}, false})
	}
	open := func(name string, was cas.Presence) {
		s.opened(t.Context(), name, Lacked)
		s.came(t.Context(), came{files[name], was})
	}
	open("main.py", cas.Absent)
	want("an import in a function", "lazy.py")
	arrive("lazy.py")
	want("a doubtful file has come", "lazy.py", "deep.py")
	arrive("deep.py")
	want("one level further", "lazy.py", "deep.py")
	for _, f := range found {
		if !f.Doubtful {
			t.Errorf("%s is not doubtful", f.Path)
		}
	}
	open("lazy.py", cas.Local)
	want("the doubtful file is opened", "lazy.py", "deep.py", "deeper.py")
	if last := found[len(found)-1]; last.Doubtful {
		t.Error("what an opened file needs is doubtful")
	}
}

// TestLateCredit: each file for which there was no credit, and which the action then opens, gives
// credit for others.
func TestLateCredit(t *testing.T) {
	h := newHostile(t)
	m, all := h.wide(60)
	from := h.file("all.h", all)
	m.Files = append([]*repb.FileNode{from}, m.Files...)
	s, found := h.search(h.folder(m))
	s.opened(t.Context(), "all.h", Lacked)
	s.came(t.Context(), came{h.digestOf(from), cas.Absent})
	s.request()
	before := len(*found)
	s.opened(t.Context(), "wide59.h", Lacked)
	s.request()
	const others = (Credit*200_000 + lateBytes) / 200_000
	if got := len(*found) - before; before >= 59 || got < others {
		t.Errorf("%d files were requested, then %d more, want at least %d", before, got, others)
	}
}

// TestInOrder: files are requested in the order in which an action reads them that reads all, also
// if the later ones were found first.
func TestInOrder(t *testing.T) {
	h := newHostile(t)
	m := &repb.Directory{}
	files := map[string]*repb.FileNode{}
	for _, f := range []struct{ name, content string }{
		{"main.c", "#include \"a.h\"\n#include \"d.h\"\n#include \"c.h\"\n"},
		{"a.h", "#include \"b.h\"\n#include \"c.h\"\n"},
		{"b.h", "int b;"},
		{"c.h", "int c;"},
		{"d.h", "#include \"e.h\"\n"},
		{"e.h", "int e;"},
	} {
		files[f.name] = h.file(f.name, f.content)
		m.Files = append(m.Files, files[f.name])
	}
	slices.SortFunc(m.Files, func(a, b *repb.FileNode) int { return strings.Compare(a.Name, b.Name) })
	s, found := h.search(h.folder(m))
	for _, name := range []string{"main.c", "d.h", "a.h"} {
		s.scan(t.Context(), name, h.digestOf(files[name]))
	}
	s.request()
	if want := []string{"a.h", "b.h", "c.h", "d.h", "e.h"}; !slices.Equal(*found, want) {
		t.Errorf("%q are requested, want %q", *found, want)
	}
}

// TestOrderIsBounded: no order is long, however many files lead to another.
func TestOrderIsBounded(t *testing.T) {
	var o order
	for i := range 1000 {
		next := o.below(i)
		if next < o || len(next) > maxOrder {
			t.Fatalf("level %d: %q after %q", i, next, o)
		}
		o = next
	}
	if a, b := order("").below(255), order("").below(256); a >= b {
		t.Errorf("%q is not before %q", a, b)
	}
}

// TestShortCredit: a file that is read next, and for which only the reserved credit was left, gives
// credit for others, too.
func TestShortCredit(t *testing.T) {
	h := newHostile(t)
	m, all := h.wide(60)
	from, last := h.file("all.h", all), h.file("last.h", "#include \"wide59.h\"\n")
	both := h.file("both.h", "#include \"last.h\"\n#include \"all.h\"\n")
	m.Files = append([]*repb.FileNode{from, both, last}, m.Files...)
	s, found := h.search(h.folder(m))
	s.scan(t.Context(), "both.h", h.digestOf(both))
	s.scan(t.Context(), "all.h", h.digestOf(from))
	s.request()
	s.scan(t.Context(), "last.h", h.digestOf(last))
	s.request()
	before := len(*found)
	if (*found)[before-1] != "wide59.h" || s.likely.unread <= FreeBytes-FreeBytes/reservedPart {
		t.Fatalf("%q are requested", *found)
	}
	s.opened(t.Context(), "last.h", Lacked)
	s.opened(t.Context(), "wide59.h", Lacked)
	s.request()
	const others = (Credit*200_000 + lateBytes) / 200_000
	if got := len(*found) - before; got < others {
		t.Errorf("%d others are requested, want at least %d", got, others)
	}
}

// TestSureWords: when two modules of the command line were right that could have been other words,
// the others are doubtful no more.
func TestSureWords(t *testing.T) {
	h := newHostile(t)
	m := &repb.Directory{}
	for _, name := range []string{"a", "b", "c"} {
		m.Files = append(m.Files, h.file(name+".py", "# "+name))
	}
	spec := h.spec(h.folder(m))
	spec.Request = func([]File) {}
	s := newSearch(New(spec))
	s.commanded(t.Context(), &Command{Args: []string{"python3", "a", "b", "c"}})
	s.request()
	for i, name := range []string{"a.py", "b.py"} {
		if w := s.asked["c.py"]; !w.Doubtful {
			t.Errorf("c.py is not doubtful after %d words", i)
		}
		s.opened(t.Context(), name, Lacked)
	}
	if w := s.asked["c.py"]; w.Doubtful {
		t.Error("c.py is doubtful")
	}
}

// TestArguments: a file of words has any name, and its words are those of the command line.
func TestArguments(t *testing.T) {
	h := newHostile(t)
	list := h.file("list", "-Ix\na.c\n")
	s, found := h.search(h.folder(&repb.Directory{Files: []*repb.FileNode{h.file("a.c", "int a;"), list}}))
	s.commanded(t.Context(), &Command{Args: []string{"cc", "@list"}})
	s.request()
	d := h.digestOf(list)
	s.ended(t.Context(), ended{[]File{{Path: "list", Digest: d}}, []digest.Digest{d}, false})
	s.request()
	if want := []string{"list", "a.c"}; !slices.Equal(*found, want) {
		t.Errorf("%q are requested, want %q", *found, want)
	}
}
