package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// slowFile is a program whose storage does not answer until the test lets it, or
// the kernel loses interest.
type slowFile struct {
	fs.Inode
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
	select {
	case <-ctx.Done():
		return nil, 0, syscall.EINTR
	case <-f.release:
		return nil, 0, syscall.EIO
	}
}

// mountSlow mounts a folder with one such program, "tool".
func mountSlow(t *testing.T) (dir string, f *slowFile) {
	t.Helper()
	dir = t.TempDir()
	f = &slowFile{asked: make(chan struct{}), release: make(chan struct{})}
	root := &fs.Inode{}
	server, err := fs.Mount(dir, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true},
		OnAdd: func(ctx context.Context) {
			root.AddChild("tool", root.NewPersistentInode(ctx, f, fs.StableAttr{Mode: syscall.S_IFREG}), true)
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
	return dir, f
}

// The timeout reaches a command that still waits in exec for its own program.
func TestTimeoutDuringExec(t *testing.T) {
	eachKind(t, func(t *testing.T, l *Launcher) {
		dir, f := mountSlow(t)
		defer close(f.release)
		cmd := command(t, "./tool")
		cmd.Dir = dir
		cmd.Timeout = 200 * time.Millisecond
		begin := time.Now()
		r := run(t, l, cmd)
		if r.Cause != TimedOut || r.Signal != "SIGKILL" {
			t.Errorf("got %+v", r)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		select {
		case <-f.asked:
		default:
			t.Error("the program was never asked for")
		}
		if r := run(t, l, shell(t, "exit 4")); r.ExitCode != 4 {
			t.Errorf("the next command: %+v", r)
		}
	})
}

func TestStorageErrorDuringExec(t *testing.T) {
	l := newLauncher(t, nil)
	dir, f := mountSlow(t)
	close(f.release)
	cmd := command(t, filepath.Join(dir, "tool"))
	cmd.Root = dir
	r := run(t, l, cmd)
	if r.Cause != NotStarted || r.ExitCode != 126 || r.Err != `exec "`+dir+`/tool": input/output error` {
		t.Errorf("got %+v", r)
	}
}
