package fusedev_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/fusedev"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
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
	c := mounts.NewFUSE(filepath.Join(t.TempDir(), "mount"), nil)
	fs := &names{fuse.NewDefaultRawFileSystem(), func(request uint64, name string) { asked(c.Device(), request, name) }}
	start(t, c, fs, 128<<10)
	return c.Dir()
}

// start mounts fs until the test ends.
func start(t *testing.T, c *mounts.FUSE, fs fuse.RawFileSystem, maxWrite int) {
	t.Helper()
	if err := os.Mkdir(c.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	vfstest.Shown(t, c.Start(fs, &fuse.MountOptions{MaxWrite: maxWrite}))
}

// look looks a name up, and fails the test unless there is none.
func look(t *testing.T, dir string, name string) {
	if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
		t.Errorf("%s: %v", name, err)
	}
}

// TestPass has answers that wait for later requests. Without Pass these come only when the answer has
// taken too long.
func TestPass(t *testing.T) {
	for _, pass := range []bool{true, false} {
		t.Run(fmt.Sprint(pass), func(t *testing.T) {
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
				if pass {
					device.Pass(request)
					device.Pass(request)
				}
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
		})
	}
}

// TestPassAtTheEnd passes the turn at the moment when the answer ends, as the timer of a late one
// does: somebody must have it then.
func TestPassAtTheEnd(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16)) // threads stop anywhere
	var passes sync.WaitGroup
	dir := show(t, func(device *fusedev.Conn, request uint64, _ string) {
		passes.Go(func() { device.Pass(request) })
		runtime.Gosched()
	})
	for n := range 20000 {
		if look(t, dir, strconv.Itoa(n)); t.Failed() {
			break
		}
	}
	passes.Wait()
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

// TestManyWait has many answers that wait. They must not each keep room for the largest request and
// answer.
func TestManyWait(t *testing.T) {
	const many = 128
	var waiting sync.WaitGroup
	waiting.Add(many)
	over := make(chan struct{})
	c := mounts.NewFUSE(filepath.Join(t.TempDir(), "mount"), nil)
	start(t, c, &names{fuse.NewDefaultRawFileSystem(), func(request uint64, _ string) {
		c.Device().Pass(request)
		waiting.Done()
		<-over
	}}, 1<<20)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var lookups sync.WaitGroup
	for n := range many {
		lookups.Go(func() { look(t, c.Dir(), strconv.Itoa(n)) })
	}
	waiting.Wait()
	if now := heap(); now > before+many*(64<<10) {
		t.Errorf("%d answers wait with %d KiB each", many, (now-before)/many>>10)
	}
	close(over)
	lookups.Wait()
}

// longLinks has only symlinks, whose targets are too long for the kernel.
type longLinks struct{ *names }

func (longLinks) Lookup(_ <-chan struct{}, _ *fuse.InHeader, _ string, out *fuse.EntryOut) fuse.Status {
	out.NodeId, out.Attr.Mode, out.Attr.Nlink = 2, fuse.S_IFLNK|0o777, 1
	return fuse.OK
}

func (longLinks) Readlink(<-chan struct{}, *fuse.InHeader) ([]byte, fuse.Status) {
	return make([]byte, 1<<20), fuse.OK
}

// TestAnswerTooLong: whoever waits for an answer that has no room gets an error.
func TestAnswerTooLong(t *testing.T) {
	c := mounts.NewFUSE(filepath.Join(t.TempDir(), "mount"), nil)
	start(t, c, longLinks{&names{RawFileSystem: fuse.NewDefaultRawFileSystem()}}, 128<<10)
	result := make(chan error)
	go func() {
		_, err := os.Readlink(filepath.Join(c.Dir(), "link"))
		result <- err
	}()
	select {
	case err := <-result:
		if !errors.Is(err, unix.EIO) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("nobody answers")
		if err := unix.Unmount(c.Dir(), unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		<-result
	}
}

// TestGone: an answer that waits learns that the mount has ended.
func TestGone(t *testing.T) {
	asked := make(chan struct{})
	dir := show(t, func(device *fusedev.Conn, request uint64, _ string) {
		gone := device.Pass(request)
		close(asked)
		select {
		case <-gone:
		case <-time.After(20 * time.Second):
			t.Error("it waits for nobody")
		}
	})
	var lookups sync.WaitGroup
	lookups.Go(func() { _, _ = os.Lstat(filepath.Join(dir, "name")) })
	<-asked
	if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
	lookups.Wait()
}
