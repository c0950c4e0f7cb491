package copied

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestWatchesOfALongAction: to measure an action again and again takes no more and more memory.
func TestWatchesOfALongAction(t *testing.T) {
	c := newCopier(t)
	r, dir := copyTo(t, c, treeOf(t, vfstest.NewSource(t), "a/b/c", "d/e"), &opens{})
	for range 100 {
		r.Aside(func() { folder.Usage(dir, 1<<30) })
	}
	if n := len(r.watches); n > 2*6 {
		t.Errorf("%d numbers of %d watches", n, inGroup(t, c))
	}
	r.Leave()
	if n := inGroup(t, c); n != 0 {
		t.Errorf("%d watches are left", n)
	}
}

// TestSwappedWhileMeasured: an action puts one input folder in the place of another while the worker
// measures. A read of it is none of the other.
func TestSwappedWhileMeasured(t *testing.T) {
	c := newCopier(t)
	var seen opens
	r, dir := copyTo(t, c, treeOf(t, vfstest.NewSource(t), "a/b", "d/e"), &seen)
	defer r.Leave()
	list := func(name string) error {
		_, err := os.ReadDir(filepath.Join(dir, name))
		return err
	}
	r.Aside(func() {
		err := errors.Join(list("a"), os.Rename(dir+"/a", dir+"/x"), os.Rename(dir+"/d", dir+"/a"))
		if err != nil {
			t.Error(err)
		}
	})
	r.Reads()
	seen.paths = nil // a may have been read
	if err := list("a"); err != nil {
		t.Error(err)
	}
	if r.Reads(); !slices.Contains(seen.paths, "d") || slices.Contains(seen.paths, "a") {
		t.Errorf("read %q", seen.paths)
	}
}

// TestSwapsWhileMeasured is for the race detector: an action keeps replacing folders by pipes and
// symlinks while the worker measures. No folder outside is watched, and no watch is left.
func TestSwapsWhileMeasured(t *testing.T) {
	c := newCopier(t)
	src := vfstest.NewSource(t)
	outside := t.TempDir()
	var st unix.Stat_t
	if err := unix.Stat(outside, &st); err != nil {
		t.Fatal(err)
	}
	r, dir := copyTo(t, c, treeOf(t, src, "a/b/c", "d/e/f", "g/h"), &opens{})
	a, d, x := dir+"/a", dir+"/d", dir+"/x"
	var action sync.WaitGroup
	measured := make(chan struct{})
	action.Go(func() {
		for {
			select {
			case <-measured:
				return
			default:
			}
			err := errors.Join(
				os.Rename(a, x), os.Symlink(outside, a), os.Remove(a), unix.Mkfifo(a, 0o600), os.Remove(a),
				os.Symlink("d", a), os.Remove(a), os.Rename(d, a), os.Rename(a, d), os.Rename(x, a))
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 300 {
		r.Aside(func() { folder.Usage(dir, 1<<30) })
		r.Reads()
	}
	close(measured)
	action.Wait()
	b, err := os.ReadFile(fmt.Sprint("/proc/self/fdinfo/", c.group))
	if err != nil || strings.Contains(string(b), fmt.Sprintf("ino:%x ", st.Ino)) {
		t.Errorf("watched: %s, %v", b, err)
	}
	r.Leave()
	if n := inGroup(t, c); n != 0 || len(c.watched) != 0 {
		t.Errorf("%d watches are left, %d are known", n, len(c.watched))
	}
}
