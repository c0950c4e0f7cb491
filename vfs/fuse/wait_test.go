package fuse

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

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
	driver, err := NewDriver(zaptest.NewLogger(t), nil, nil)
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

// TestNobodyWaits ends the mount of a layer, not the layer, while an access waits.
func TestNobodyWaits(t *testing.T) {
	driver, err := NewDriver(zaptest.NewLogger(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	src := vfstest.NewSource(t)
	root := src.Tree(t, "dir/file")
	src.InCall = make(chan digest.Digest, 1)
	src.Gate(root)
	ended := make(chan struct{})
	l := driver.NewLayer(t.Context(), Options{
		Name: "alone", Folder: filepath.Join(src.Dir, "layer"), Digest: root, Source: src, Owner: folder.ProcessOwner(),
		Inodes: NewInodes(), Hooks: Hooks{Read: func(*Node) {}, Stall: func(time.Duration) { close(ended) }},
	})
	hide := sync.OnceValue(l.Hide)
	t.Cleanup(func() { _ = hide() })
	vfstest.Shown(t, l.Show(t.Context()))
	reader := exec.Command("ls", l.InputFolder())
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	<-src.InCall
	if err := unix.Unmount(l.InputFolder(), unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
	if err := reader.Wait(); err == nil {
		t.Error("the directory could be read")
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the access waits for an answer that nobody can get")
	}
	if err := hide(); err != nil {
		t.Error(err)
	}
}
