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
	var wide strings.Builder
	m := &repb.Directory{}
	for i := range 40 {
		name := fmt.Sprintf("wide%02d.h", i)
		fmt.Fprintf(&wide, "#include \"%s\"\n", name)
		m.Files = append(m.Files, h.file(name, fmt.Sprint(i, strings.Repeat("x", 200_000))))
	}
	early := h.file("early.h", wide.String()+"#include \"shared.h\"\n")
	late := h.file("late.h", "#include \"shared.h\"\n#include \"next.h\"\n")
	m.Files = append([]*repb.FileNode{early, late, h.file("next.h", "int next;"), h.file("shared.h", "int shared;")}, m.Files...)
	var found []string
	spec := h.spec(h.folder(m))
	spec.Request = func(files []File, _ int64) {
		for _, f := range files {
			found = append(found, f.Path)
		}
	}
	s := newSearch(t.Context(), New(spec))
	var ds []digest.Digest
	for _, f := range []*repb.FileNode{early, late} {
		d, err := digest.FromProto(digest.SHA256, f.Digest)
		if err != nil {
			t.Fatal(err)
		}
		s.scan(t.Context(), f.Name, d)
		ds = append(ds, d)
	}
	s.request()
	if slices.Contains(found, "next.h") || len(found) < 10 {
		t.Fatalf("the credit is not used up by %q", found)
	}
	s.opened(t.Context(), "late.h")
	s.came(t.Context(), came{ds[1], cas.Absent})
	s.request()
	for _, want := range []string{"next.h", "shared.h"} {
		if !slices.Contains(found, want) {
			t.Errorf("%s is not requested", want)
		}
	}
	if s.unread > FreeBytes {
		t.Errorf("%d bytes are unread", s.unread)
	}
}
