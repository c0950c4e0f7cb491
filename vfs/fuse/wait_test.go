package fuse

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// lateSource records whether it was called when that was no longer allowed.
type lateSource struct {
	*vfstest.Source
	over, late *atomic.Bool
}

func (s lateSource) Directory(context.Context, digest.Digest) (*tree.Directory, error) {
	if s.over.Load() {
		s.late.Store(true)
	}
	return nil, errors.New("none")
}

// TestNoLoadsAfterHide has others than the layer's connection ask it for directories while it is
// hidden.
func TestNoLoadsAfterHide(t *testing.T) {
	driver, err := NewDriver(zaptest.NewLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	src := lateSource{vfstest.NewSource(t), new(atomic.Bool), new(atomic.Bool)}
	root := src.Tree(t, "dir/file")
	for range 1000 {
		src.over.Store(false)
		l := driver.NewLayer(t.Context(), Options{
			Name: "late", Folder: filepath.Join(src.Dir, "none"), Digest: root, Source: src, Owner: folder.ProcessOwner(),
			Inodes: NewInodes(),
		})
		var askers sync.WaitGroup
		begun := make(chan struct{}, 2)
		for range 2 {
			askers.Go(func() {
				for first := true; ; first = false {
					_, err := l.Directory(nil, 0, "dir", root)
					if first {
						begun <- struct{}{}
					}
					if errors.Is(err, context.Canceled) {
						return
					}
				}
			})
		}
		<-begun
		err := l.Hide()
		src.over.Store(true)
		askers.Wait()
		if err != nil {
			t.Fatal(err)
		}
	}
	if src.late.Load() {
		t.Error("the source was asked by a layer that was hidden")
	}
}
