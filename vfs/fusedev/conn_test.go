package fusedev_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/forerunner-build/forerunner/vfs/fusedev"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// names is a file system that is asked for names only, and has none.
type names struct {
	fuse.RawFileSystem
	asked func(request uint64, name string)
}

func (n *names) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, _ *fuse.EntryOut) fuse.Status {
	n.asked(in.Unique, name)
	return fuse.ENOENT
}

// GetAttr answers for the root, which is all there is.
func (n *names) GetAttr(_ <-chan struct{}, _ *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.Ino, out.Mode, out.Nlink = fuse.FUSE_ROOT_ID, fuse.S_IFDIR|0o755, 1
	out.SetTimeout(time.Hour)
	return fuse.OK
}

// show mounts a file system of names. asked is called for each lookup.
func show(t *testing.T, asked func(device *fusedev.Conn, request uint64, name string)) (dir string) {
	t.Helper()
	f, err := os.OpenFile(mounts.FUSEDevice, os.O_RDWR, 0)
	if err == nil {
		_ = f.Close()
	}
	if (err != nil || os.Geteuid() != 0) && os.Getenv("CI") == "" {
		t.Skip("no FUSE, or not root:", err)
	}
	c := mounts.NewFUSE(filepath.Join(t.TempDir(), "mount"))
	if err := os.Mkdir(c.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	fs := &names{fuse.NewDefaultRawFileSystem(), func(request uint64, name string) { asked(c.Device(), request, name) }}
	if err := c.Start(fs, &fuse.MountOptions{MaxWrite: 128 << 10}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c.Dir()
}

// look looks a name up, and fails the test unless there is none.
func look(t *testing.T, dir string, name string) {
	if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
		t.Errorf("%s: %v", name, err)
	}
}

// TestPass has answers that wait for later requests.
func TestPass(t *testing.T) {
	const first, all = 20, 40
	var gates [first]chan struct{}
	for i := range gates {
		gates[i] = make(chan struct{})
	}
	dir := show(t, func(device *fusedev.Conn, request uint64, name string) {
		n, err := strconv.Atoi(name)
		if err != nil {
			t.Errorf("a lookup of %q", name)
			return
		}
		if n >= first {
			close(gates[n-first])
			return
		}
		device.Pass(request)
		device.Pass(request)
		select {
		case <-gates[n]:
		case <-time.After(20 * time.Second):
			t.Errorf("request %d waits, and nobody reads the others", n)
		}
	})
	var lookups sync.WaitGroup
	defer lookups.Wait()
	for n := range all {
		lookups.Go(func() { look(t, dir, strconv.Itoa(n)) })
	}
}

// TestSeveralAsk has more requests at a time than one goroutine answers. None of them passes.
func TestSeveralAsk(t *testing.T) {
	var now, most atomic.Int32
	dir := show(t, func(*fusedev.Conn, uint64, string) {
		n := now.Add(1)
		defer now.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		time.Sleep(time.Millisecond) // as for a disk
	})
	var lookups sync.WaitGroup
	for n := range 16 {
		lookups.Go(func() {
			for i := range 20 {
				look(t, dir, fmt.Sprintf("%d-%d", n, i))
			}
		})
	}
	lookups.Wait()
	if most.Load() < 2 {
		t.Errorf("at most %d requests were answered at a time", most.Load())
	}
}

// TestStopWhileAsked ends mounts while requests are answered, some of them by goroutines without
// the turn.
func TestStopWhileAsked(t *testing.T) {
	for range 20 {
		t.Run("", func(t *testing.T) {
			var answers atomic.Int32
			var over atomic.Bool
			var lookers sync.WaitGroup
			t.Cleanup(func() { // after the mount has ended
				over.Store(true)
				lookers.Wait()
			})
			dir := show(t, func(device *fusedev.Conn, request uint64, name string) {
				if strings.HasSuffix(name, "0") {
					device.Pass(request)
				}
				answers.Add(1)
			})
			for n := range 4 {
				lookers.Go(func() {
					for i := 0; !over.Load(); i++ {
						_, _ = os.Lstat(filepath.Join(dir, fmt.Sprintf("%d-%d", n, i)))
					}
				})
			}
			for answers.Load() < 100 {
				time.Sleep(time.Millisecond)
			}
		})
	}
}
