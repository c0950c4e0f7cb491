package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

// TestLeasedFile: a command with a lease of a file does not delay the watcher. It is then unknown
// what was opened; later events are handled.
func TestLeasedFile(t *testing.T) {
	w, err := newWatcher()
	if err != nil {
		t.Skip(err)
	}
	defer w.close()
	for _, size := range []int{watchBuffer, eventHead} {
		if w.bytes = size; size == eventHead { // as on an older kernel
			must(t, unix.Close(w.fd))
			w.fd, err = unix.FanotifyInit(groupFlags, fileFlags)
			must(t, err)
		}
		dir := t.TempDir()
		for _, name := range []string{"before", "leased", "behind"} {
			path := filepath.Join(dir, name)
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, unix.FanotifyMark(w.fd, unix.FAN_MARK_ADD, unix.FAN_OPEN, unix.AT_FDCWD, path))
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			must(t, err)
			defer file.Close()
			if name == "leased" {
				_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
				must(t, err)
			}
		}
		v := &View{}
		w.mu.Lock()
		w.roots[fsid{1, 1}] = v
		w.mu.Unlock()
		w.drain()
		if left, err := unix.IoctlGetInt(w.fd, unix.TIOCINQ); !v.blind.Load() || left != 0 || err != nil {
			t.Errorf("with a buffer of %d bytes: blind %t, %d bytes left, %v", size, v.blind.Load(), left, err)
		}
		w.mu.Lock()
		clear(w.roots)
		w.mu.Unlock()
	}
}

// TestLongRootIsWatched: a root whose opens never end, at a rate at which they are handled, stays
// watched even if the kernel always has a few more. If it has more and more, the root with the most
// is left.
func TestLongRootIsWatched(t *testing.T) {
	now := time.Unix(1, 0)
	w := &watcher{fd: -1, taken: map[*View]int{}, now: func() time.Time { return now }}
	long, short := &View{}, &View{}
	for range 3 {
		for range mostEvents {
			w.period(10)
			w.count(long)
		}
		w.count(short)
		now = now.Add(countPeriod)
	}
	if long.left || long.blind.Load() {
		t.Error("a root that is only long is left")
	}
	if w.period(mostEvents + 1); !long.left || !long.blind.Load() || short.left {
		t.Errorf("of more and more events: the root with the most is left: %t, another: %t",
			long.left, short.left)
	}
	for range mostEvents {
		w.count(short)
	}
	if short.left || w.count(short) || !short.left {
		t.Error("a root with too many events in a short time is not left after the last of them")
	}
}

// TestOnlyViewOfAnImage: the inode of a grown image says in which root a file was opened, while that
// is watched.
func TestOnlyViewOfAnImage(t *testing.T) {
	c, src, _ := openCache(t)
	root := newTree(t, src, 3)
	grownViewOf(t, c, src, root, nobodyWaits{t}) // if the kernel can
	v := c.View(root, src, folder.ProcessOwner(), Hooks{}, nobodyWaits{t})
	defer v.Release()
	id := v.grafts[0].image.id
	const noFile = -1
	if got := c.watcher.viewOf(noFile, id); got != nil {
		t.Error("a root is found before it is watched")
	}
	must(t, v.Watch(v.Folders()[0]))
	if got := c.watcher.viewOf(noFile, id); got != v || v.blind.Load() {
		t.Errorf("found %p, want %p; blind %t", got, v, v.blind.Load())
	}
	v.Unwatch()
	if got := c.watcher.viewOf(noFile, id); got != nil || len(c.watcher.alone) > 0 {
		t.Error("a root is found after it was watched")
	}
}
