package vfs

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadsInputs(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		h := startChild(t, "helper")
		src := newFakeSource(t)
		root := src.tree(t, "a/b/file", "a/tool!", "empty/", "link -> a/b/file")
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		for _, p := range []string{"a/b/file", "link"} {
			got, err := os.ReadFile(filepath.Join(r.Path(), p))
			if err != nil || string(got) != "content of file" {
				t.Errorf("read %s: %q, %v", p, got, err)
			}
		}
		if got := h.do("map", filepath.Join(r.Path(), "a/b/file")); got != "content of file" {
			t.Errorf("map: %q", got)
		}
		if err := r.Err(); err != nil {
			t.Error(err)
		}
	})
}
