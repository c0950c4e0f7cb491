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
	m.Files = append([]*repb.FileNode{early, late, h.file("next.h", "int next;"), h.file("shared.h", "int shared;")}, m.Files...)
	s, found := h.search(h.folder(m))
	var ds []digest.Digest
	for _, f := range []*repb.FileNode{early, late} {
		d := h.digestOf(f)
		s.scan(t.Context(), f.Name, d)
		ds = append(ds, d)
	}
	s.request()
	if slices.Contains(*found, "next.h") || len(*found) < 10 {
		t.Fatalf("the credit is not used up by %q", *found)
	}
	s.opened(t.Context(), "late.h")
	s.came(t.Context(), came{ds[1], cas.Absent})
	s.request()
	for _, want := range []string{"next.h", "shared.h"} {
		if !slices.Contains(*found, want) {
			t.Errorf("%s is not requested", want)
		}
	}
	if s.unread > FreeBytes {
		t.Errorf("%d bytes are unread", s.unread)
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
	spec.Request = func(files []File, _ int64) {
		for _, f := range files {
			*found = append(*found, f.Path)
		}
	}
	return newSearch(h.Context(), New(spec)), found
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
	spec.Request = func(files []File, _ int64) { found = append(found, files...) }
	s := newSearch(t.Context(), New(spec))
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
		s.ended(t.Context(), ended{[]File{{Path: name, Digest: files[name], Doubtful: true}}, []digest.Digest{files[name]}})
	}
	open := func(name string, was cas.Presence) {
		s.opened(t.Context(), name)
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
	s.opened(t.Context(), "all.h")
	s.came(t.Context(), came{h.digestOf(from), cas.Absent})
	s.request()
	before := len(*found)
	s.opened(t.Context(), "wide59.h")
	s.request()
	const others = (Credit*200_000 + lateBytes) / 200_000
	if got := len(*found) - before; before >= 59 || got < others {
		t.Errorf("%d files were requested, then %d more, want at least %d", before, got, others)
	}
}
