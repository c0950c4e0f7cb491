package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestKnownBytes has a root whose paths are far more than its messages: each directory is at many
// of them. Looking at all of them fails, with an error that says why, and costs no more memory than
// there is for it; other roots go on.
func TestKnownBytes(t *testing.T) {
	const most = 1 << 20
	src := vfstest.NewSource(t)
	f := openFS(t, Options{KnownBytes: most})
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("link%d -> %s", i, strings.Repeat("t", 3000)))
	}
	leaf := src.Tree(t, names...)
	root := src.Repeat(t, leaf, 100)
	large := openRoot(t, f, RootSpec{Name: "large", Digest: root, Source: src})
	small := openRoot(t, f, RootSpec{Name: "small", Digest: src.Tree(t, "a/file"), Source: src})
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		for j := 0; j < 40 && err == nil; j++ {
			_, err = os.Lstat(filepath.Join(large.Path(), fmt.Sprintf("%03d/link%d", i, j)))
		}
	}
	if !errors.Is(err, unix.ENOMEM) || !errors.Is(large.Err(), tree.ErrTooLarge) {
		t.Errorf("who looks at everything gets %v, and the root says %v", err, large.Err())
	}
	if used := f.memory.Used(); used > most {
		t.Errorf("%d bytes are used, of %d", used, most)
	}
	if b, err := os.ReadFile(filepath.Join(small.Path(), "a/file")); err != nil || len(b) == 0 || small.Err() != nil {
		t.Errorf("another root: %q, %v, %v", b, err, small.Err())
	}
	for _, r := range []*Root{large, small} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if used := f.memory.Used(); used != 0 {
		t.Errorf("%d bytes are used by roots that are closed", used)
	}
}
