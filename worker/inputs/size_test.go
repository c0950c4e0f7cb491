package inputs

import (
	"fmt"
	"math"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	inputtree "github.com/forerunner-build/forerunner/cas/tree"
)

// knownDirectories counts how often it is asked.
type knownDirectories struct {
	known map[digest.Digest]*inputtree.Directory
	asked int
}

func (k *knownDirectories) LocalDirectory(d digest.Digest) (*inputtree.Directory, bool) {
	k.asked++
	return k.known[d], k.known[d] != nil
}

func (k *knownDirectories) put(t *testing.T, m *repb.Directory) digest.Digest {
	t.Helper()
	d, raw, err := digest.OfMessage(digest.SHA256, m)
	check(t, err)
	k.known[d], err = inputtree.Parse(digest.SHA256, raw)
	check(t, err)
	return d
}

func TestSize(t *testing.T) {
	k := &knownDirectories{known: map[digest.Digest]*inputtree.Directory{}}
	file := func(name string) *repb.FileNode {
		return &repb.FileNode{Name: name, Digest: digest.Of(digest.SHA256, []byte(name)).Proto()}
	}
	leaf := k.put(t, &repb.Directory{Files: []*repb.FileNode{file("four"), file("three")}})
	root := k.put(t, &repb.Directory{
		Files:       []*repb.FileNode{file("a")},
		Directories: []*repb.DirectoryNode{{Name: "x", Digest: leaf.Proto()}, {Name: "y", Digest: leaf.Proto()}},
	})
	sizes := NewSizes()
	want := Size{Files: 5, Bytes: 1 + 2*9, Whole: true}
	for range 2 {
		if got := sizes.Of(k, root); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if k.asked != 2 {
		t.Errorf("asked for %d directories, want each once", k.asked)
	}
	// A missing directory does not count until it is there.
	other := k.put(t, &repb.Directory{Files: []*repb.FileNode{file("other")}})
	root = k.put(t, &repb.Directory{
		Directories: []*repb.DirectoryNode{{Name: "x", Digest: leaf.Proto()}, {Name: "z", Digest: other.Proto()}},
	})
	there := k.known[other]
	delete(k.known, other)
	if got, want := sizes.Of(k, root), (Size{Files: 2, Bytes: 9}); got != want {
		t.Errorf("%+v, want the lower bound %+v", got, want)
	}
	k.known[other] = there
	if got, want := sizes.Of(k, root), (Size{Files: 3, Bytes: 14, Whole: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// 10^30 paths in 30 directories.
	for range 30 {
		m := &repb.Directory{}
		for i := range 10 {
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: string(rune('a' + i)), Digest: root.Proto()})
		}
		root = k.put(t, m)
	}
	if got := sizes.Of(k, root); got.Bytes != math.MaxInt64 || !got.Whole {
		t.Errorf("%+v", got)
	}
}

// TestSizeOfClaims: a directory whose files claim more bytes than an int64 counts has the largest
// number of bytes.
func TestSizeOfClaims(t *testing.T) {
	k := &knownDirectories{known: map[digest.Digest]*inputtree.Directory{}}
	m := &repb.Directory{}
	claim := &repb.Digest{Hash: digest.SHA256.Empty().Hash(), SizeBytes: digest.MaxSizeBytes}
	for i := range 1 << 15 {
		m.Files = append(m.Files, &repb.FileNode{Name: fmt.Sprintf("%05d", i), Digest: claim})
	}
	want := Size{Files: 1 << 15, Bytes: math.MaxInt64, Whole: true}
	if got := NewSizes().Of(k, k.put(t, m)); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
