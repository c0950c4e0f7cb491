package runner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

// slowFile is a program whose storage does not answer until the test lets it, or,
// unless it is deaf, the kernel loses interest.
type slowFile struct {
	fs.Inode
	deaf    atomic.Bool
	asked   chan struct{} // closed at the first open
	once    sync.Once
	release chan struct{}
}

var (
	_ fs.NodeOpener    = (*slowFile)(nil)
	_ fs.NodeGetattrer = (*slowFile)(nil)
)

func (f *slowFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o755|syscall.S_IFREG, 100
	return 0
}

func (f *slowFile) Open(ctx context.Context, _ uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f.once.Do(func() { close(f.asked) })
	interrupted := ctx.Done()
	if f.deaf.Load() {
		interrupted = nil
	}
	select {
	case <-interrupted:
		return nil, 0, syscall.EINTR
	case <-f.release:
		return nil, 0, syscall.EIO
	}
}

// mountSlow mounts a folder with one such program, "tool".
func mountSlow(t *testing.T) (dir string, f *slowFile) {
	t.Helper()
	f = &slowFile{asked: make(chan struct{}), release: make(chan struct{})}
	return mountFile(t, "tool", f), f
}

// mountFile mounts a folder with one file.
func mountFile(t *testing.T, name string, f fs.InodeEmbedder) (dir string) {
	t.Helper()
	dir = t.TempDir()
	root := &fs.Inode{}
	server, err := fs.Mount(dir, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true},
		OnAdd: func(ctx context.Context) {
			root.AddChild(name, root.NewPersistentInode(ctx, f, fs.StableAttr{Mode: syscall.S_IFREG}), true)
		},
	})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no FUSE: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// The timeout reaches a command that still waits in exec for its own program.
func TestTimeoutDuringExec(t *testing.T) {
	launchertest.EachKind(t, func(t *testing.T, l *runner.Launcher) {
		dir, f := mountSlow(t)
		defer close(f.release)
		cmd := launchertest.Command(t, "./tool")
		cmd.Dir = dir
		cmd.Timeout = time.Second // in which also a busy machine comes to exec
		begin := time.Now()
		r := launchertest.Run(t, l, cmd)
		if r.Cause != runner.TimedOut || r.Signal != "SIGTERM" {
			t.Errorf("got %+v", r)
		}
		if took := time.Since(begin); took > 2*time.Minute {
			t.Errorf("took %v", took)
		}
		select {
		case <-f.asked:
		default:
			t.Error("the program was never asked for")
		}
		if r := launchertest.Run(t, l, launchertest.Shell(t, "exit 4")); r.ExitCode != 4 {
			t.Errorf("the next command: %+v", r)
		}
	})
}

// TestStuckOnAMount: a process whose mount does not even answer an interrupt cannot be killed until
// the owner of the mount, who is told, gives up.
func TestStuckOnAMount(t *testing.T) {
	kinds := []struct {
		name string
		l    *runner.Launcher
		r    runner.Result
		err  error
		told int
	}{
		{name: "tree", l: launchertest.Plain(t, nil)},
		{name: "v1", l: launchertest.Plain(t, launchertest.Slot(t, 1))},
		{name: "v2", l: launchertest.Plain(t, launchertest.Slot(t, 2))},
		{name: "sandbox", l: launchertest.Sandboxed(t, nil)},
		{name: "sandbox v1", l: launchertest.Sandboxed(t, launchertest.Slot(t, 1))},
		{name: "sandbox v2", l: launchertest.Sandboxed(t, launchertest.Slot(t, 2))},
	}
	var wg sync.WaitGroup
	for i := range kinds { // at once, since each takes stuckAfter
		k := &kinds[i]
		dir, f := mountSlow(t)
		f.deaf.Store(true)
		cmd := launchertest.Complete(t, k.l, launchertest.Shell(t, "(setsid cat tool &); cat tool & wait"))
		cmd.Dir, cmd.Root = dir, dir
		cmd.Stuck = func(pids []int) {
			if k.told++; len(pids) == 0 {
				t.Errorf("%s: nobody is stuck", k.name)
			}
			close(f.release)
		}
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			<-f.asked
			cancel()
		})
		wg.Go(func() { k.r, k.err = k.l.Run(ctx, cmd) })
	}
	wg.Wait()
	launchertest.AssertNothingLeft(t)
	for _, k := range kinds {
		if k.err != nil || k.r.Cause != runner.Cancelled || k.told != 1 {
			t.Errorf("%s: got %+v, %v; was told %d times", k.name, k.r, k.err, k.told)
		}
		if r := launchertest.Run(t, k.l, launchertest.Shell(t, "exit 4")); r.ExitCode != 4 {
			t.Errorf("%s: the next command: %+v", k.name, r)
		}
	}
}

func TestStorageErrorDuringExec(t *testing.T) {
	l := launchertest.Plain(t, nil)
	dir, f := mountSlow(t)
	close(f.release)
	cmd := launchertest.Command(t, filepath.Join(dir, "tool"))
	cmd.Root = dir
	r := launchertest.Run(t, l, cmd)
	if r.Cause != runner.NotStarted || r.ExitCode != 126 || r.Err != `exec "`+dir+`/tool": input/output error` {
		t.Errorf("got %+v", r)
	}
}

// fullFile takes nothing, and does not say so.
type fullFile struct{ fs.Inode }

var (
	_ fs.NodeOpener    = (*fullFile)(nil)
	_ fs.NodeSetattrer = (*fullFile)(nil)
	_ fs.NodeWriter    = (*fullFile)(nil)
)

func (*fullFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (*fullFile) Setattr(context.Context, fs.FileHandle, *fuse.SetAttrIn, *fuse.AttrOut) syscall.Errno {
	return 0
}

func (*fullFile) Write(context.Context, fs.FileHandle, []byte, int64) (uint32, syscall.Errno) {
	return 0, 0
}

// TestOutputFileThatTakesNothing: a write of nothing is not tried again and again.
func TestOutputFileThatTakesNothing(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cmd := launchertest.Shell(t, "echo out")
	cmd.Stdout = filepath.Join(mountFile(t, "stdout", &fullFile{}), "stdout")
	if _, err := l.Run(t.Context(), cmd); err == nil || !strings.Contains(err.Error(), "short write") {
		t.Errorf("got %v", err)
	}
	if r := launchertest.Run(t, l, launchertest.Shell(t, "exit 4")); r.ExitCode != 4 {
		t.Errorf("the next command: %+v", r)
	}
}
