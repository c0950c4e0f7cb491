package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestManyOpensOfOneBlob would break the kernel's rule of one backing id for an
// open file, if the table gave out two.
func TestManyOpensOfOneBlob(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		root := src.Tree(t, "a/file", "b/file", "c/file")
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		var g errgroup.Group
		for i := range 30 {
			g.Go(func() error {
				for range 20 {
					p := filepath.Join(r.Path(), string(rune('a'+i%3)), "file")
					got, err := os.ReadFile(p)
					if err != nil || string(got) != "content of file" {
						return fmt.Errorf("%s: %q, %w", p, got, err)
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if n := openDescriptors(t, src.Dir); f.Passthrough() && n > 0 {
			t.Errorf("%d descriptors of blobs are open", n)
		}
		waitUntil(t, "the releases", func() bool { return openDescriptors(t, src.Dir) == 0 })
	})
}
