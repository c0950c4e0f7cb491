package main

import (
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch"
)

// TestProfiledTree lays a profile over a tree.
func TestProfiledTree(t *testing.T) {
	var all []*repb.Directory
	put := func(m *repb.Directory) *repb.Digest {
		all = append(all, m)
		d, _, err := digest.OfMessage(digest.SHA256, m)
		if err != nil {
			t.Fatal(err)
		}
		return d.Proto()
	}
	file := func(name string, size int) *repb.FileNode {
		return &repb.FileNode{Name: name, Digest: digest.Of(digest.SHA256, []byte(strings.Repeat("x", size))).Proto()}
	}
	deep := put(&repb.Directory{Files: []*repb.FileNode{file("one", 10), file("two", 20)}})
	lib := put(&repb.Directory{
		Files:       []*repb.FileNode{file("large", 3<<20), file("used", 100)},
		Directories: []*repb.DirectoryNode{{Name: "deep", Digest: deep}},
	})
	root, err := digest.FromProto(digest.SHA256, put(&repb.Directory{
		Files:       []*repb.FileNode{file("main", 5)},
		Directories: []*repb.DirectoryNode{{Name: "lib", Digest: lib}, {Name: "other", Digest: deep}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var hashes []prefetch.PathHash
	for _, p := range []string{"", "main", "lib", "lib/used"} {
		hashes = append(hashes, prefetch.HashPath(p))
	}
	tree, err := newProfiledTree(prefetch.NewProfile(hashes, prefetch.ProfileOptions{}), root, all)
	if err != nil {
		t.Fatal(err)
	}
	for unused, want := range map[bool]string{
		false: "+ 5 B main|- 3072 KiB lib/large|+ 100 B lib/used|- 30 B lib/deep/ (2 files)|- 30 B other/ (2 files)|",
		true:  "- 3072 KiB lib/large|- 30 B lib/deep/ (2 files)|- 30 B other/ (2 files)|",
	} {
		var b strings.Builder
		tree.print(&b, unused)
		var got string
		for line := range strings.Lines(b.String()) {
			if !strings.HasPrefix(line, "foreseen") {
				got += strings.Join(strings.Fields(line), " ") + "|"
			}
		}
		if got != want {
			t.Errorf("unused %v: %s, want %s", unused, got, want)
		}
		if !strings.Contains(b.String(), "foreseen: 2 of 7 files") {
			t.Errorf("no sum in %s", &b)
		}
	}
	if _, err := parseDigest("abc"); err == nil {
		t.Error("a digest without a size was taken")
	}
}
