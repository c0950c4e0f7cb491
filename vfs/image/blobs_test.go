package image

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/erofs"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// parse returns the Directory of a message.
func parse(t *testing.T, m *repb.Directory) *tree.Directory {
	t.Helper()
	_, b, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := tree.Parse(digest.SHA256, b)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestShowAll compares all entries with each one, with memory that other directories have used.
func TestShowAll(t *testing.T) {
	b := &Blobs{Path: vfstest.BlobFile}
	var s scratch
	for _, n := range []int{0, 3, 40, 7, mostScratch + 1, 2} {
		m := &repb.Directory{Symlinks: []*repb.SymlinkNode{{Name: "link", Target: "target"}}}
		for i := range n {
			content := []byte(fmt.Sprint("content", i)[:i%8]) // some are empty
			m.Files = append(m.Files, &repb.FileNode{Name: fmt.Sprintf("file%06d", i), Digest: digest.Of(digest.SHA256, content).Proto()})
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: fmt.Sprintf("dir%06d", i), Digest: digest.SHA256.Empty().Proto()})
		}
		dir := parse(t, m)
		var want []erofs.Entry
		for i := range dir.Len() {
			want = append(want, b.show(dir.At(i)))
		}
		got, err := b.showAll(dir, &s)
		equal := func(a, b erofs.Entry) bool {
			return a.Name == b.Name && a.Mode == b.Mode && a.MTime.Equal(b.MTime) && a.Size == b.Size && a.Redirect == b.Redirect && a.Target == b.Target && len(a.Entries)+len(b.Entries) == 0
		}
		if err != nil || !slices.EqualFunc(got, want, equal) {
			t.Errorf("of %d entries: %v, %+v", len(want), err, got)
		}
		if s.trim(); cap(s.entries) > mostScratch {
			t.Errorf("it keeps the memory of %d entries", cap(s.entries))
		}
	}
	nothing := &repb.Digest{Hash: digest.Of(digest.SHA256, []byte("x")).Hash()}
	dir := parse(t, &repb.Directory{Files: []*repb.FileNode{{Name: "a", Digest: nothing}}})
	if _, err := b.showAll(dir, &s); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("a blob that cannot exist: %v", err)
	}
}
