package vfs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

func TestDirectoryRejects(t *testing.T) {
	d := digest.Of(digest.SHA256, nil).Proto()
	files := func(names ...string) *repb.Directory {
		m := &repb.Directory{}
		for _, n := range names {
			m.Files = append(m.Files, &repb.FileNode{Name: n, Digest: d})
		}
		return m
	}
	with := func(m *repb.Directory, dir, link string) *repb.Directory {
		if dir != "" {
			m.Directories = []*repb.DirectoryNode{{Name: dir, Digest: d}}
		}
		if link != "" {
			m.Symlinks = []*repb.SymlinkNode{{Name: link, Target: "t"}}
		}
		return m
	}
	for name, m := range map[string]*repb.Directory{
		"nil":                     nil,
		"empty name":              files(""),
		"dot":                     files("."),
		"dot dot":                 files(".."),
		"slash":                   files("a/b"),
		"NUL":                     files("a\x00b"),
		"too long":                files(strings.Repeat("x", 256)),
		"twice":                   files("a", "a"),
		"out of order":            files("b", "a"),
		"file and directory":      with(files("a", "b"), "b", ""),
		"file and symlink":        with(files("a", "b"), "", "b"),
		"directory and symlink":   with(files("a"), "b", "b"),
		"bad name of a directory": with(files(), "..", ""),
		"bad name of a symlink":   with(files(), "", "x/y"),
	} {
		if _, err := newDirectory(digest.SHA256, m); !errors.Is(err, ErrInvalidDirectory) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := newDirectory(digest.SHA256, files("", "x")); err == nil {
		t.Error("an empty name among others is accepted")
	}
}

func TestDirectoryEntriesReject(t *testing.T) {
	good := digest.Of(digest.SHA256, nil).Proto()
	for name, m := range map[string]*repb.Directory{
		"no digest of a file":      {Files: []*repb.FileNode{{Name: "x"}}},
		"no digest of a directory": {Directories: []*repb.DirectoryNode{{Name: "x"}}},
		"short hash":               {Files: []*repb.FileNode{{Name: "x", Digest: &repb.Digest{Hash: "ab"}}}},
		"negative size":            {Files: []*repb.FileNode{{Name: "x", Digest: &repb.Digest{Hash: good.Hash, SizeBytes: -1}}}},
		"no target":                {Symlinks: []*repb.SymlinkNode{{Name: "x"}}},
		"NUL in target":            {Symlinks: []*repb.SymlinkNode{{Name: "x", Target: "a\x00"}}},
		"long target":              {Symlinks: []*repb.SymlinkNode{{Name: "x", Target: strings.Repeat("a", 4096)}}},
	} {
		d, err := newDirectory(digest.SHA256, m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := d.at(0); !errors.Is(err, ErrInvalidDirectory) {
			t.Errorf("%s: at: %v", name, err)
		}
		if _, ok, err := d.find("x"); !ok || !errors.Is(err, ErrInvalidDirectory) {
			t.Errorf("%s: find: %t, %v", name, ok, err)
		}
	}
}

func TestDirectoryFindsWhatItLists(t *testing.T) {
	d := digest.Of(digest.BLAKE3, nil).Proto()
	m := &repb.Directory{}
	for i := range 100 {
		m.Files = append(m.Files, &repb.FileNode{Name: fmt.Sprintf("f%03d", i), Digest: d})
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: fmt.Sprintf("d%03d", i), Digest: d})
		m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: fmt.Sprintf("é%03d", i), Target: "t"})
	}
	dir, err := newDirectory(digest.BLAKE3, m)
	if err != nil || dir.len() != 300 {
		t.Fatalf("%d entries, %v", dir.len(), err)
	}
	for i := range dir.len() {
		e, err := dir.at(i)
		if err != nil {
			t.Fatal(err)
		}
		found, ok, err := dir.find(e.name)
		if err != nil || !ok || found != e {
			t.Errorf("%s: listed %+v, found %+v, %t, %v", e.name, e, found, ok, err)
		}
	}
	for _, name := range []string{"", "f", "f0000", "zz", "e000"} {
		if _, ok, err := dir.find(name); ok || err != nil {
			t.Errorf("%q: found, %v", name, err)
		}
	}
}
