package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/forerunner-build/forerunner/test/programs"
)

// A sickDisk is an ext4 file system on a device that can fail: a loop device over a file that the
// test serves.
type sickDisk struct {
	*programs.Test
	dir   string
	bytes int64
	disks int
	file  *sickFile
	ends  []func() // what remains to be done for each disk when none is mounted any more
}

// goneWithin is how long it is waited for the kernel to let go of a disk.
const goneWithin = 10 * time.Second

// newSickDisk mounts one until the end of the test.
func newSickDisk(f *programs.Test, dir string, bytes int64) *sickDisk {
	f.Helper()
	d := &sickDisk{Test: f, dir: dir, bytes: bytes}
	if err := os.Mkdir(dir, 0o755); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		d.unmount()
		for _, end := range d.ends {
			end()
		}
	})
	d.replace()
	return d
}

// replace mounts a new disk, which is well and empty, in place of the one before, if any.
func (d *sickDisk) replace() {
	d.Helper()
	d.unmount()
	d.disks++
	image := filepath.Join(d.Dir, fmt.Sprintf("disk-%d.image", d.disks))
	backing, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		d.Fatal(err)
	}
	if err := backing.Truncate(d.bytes); err != nil {
		d.Fatal(err)
	}
	d.command("mkfs.ext4", "-q", "-F", image)
	served := filepath.Join(d.Dir, fmt.Sprintf("disk-%d", d.disks))
	if err := os.Mkdir(served, 0o700); err != nil {
		d.Fatal(err)
	}
	d.file = &sickFile{backing: backing}
	server, err := fs.Mount(served, &sickFolder{file: d.file}, &fs.Options{MountOptions: fuse.MountOptions{DirectMount: true}})
	if err != nil {
		programs.Needs(d.T, "a disk that fails needs FUSE: %v", err)
	}
	d.ends = append(d.ends, func() {
		if err := syscall.Unmount(served, syscall.MNT_DETACH); err != nil {
			d.Error(err)
		}
		gone := make(chan struct{})
		go func() {
			server.Wait() // until the loop device has closed its file
			_ = backing.Close()
			close(gone)
		}()
		select {
		case <-gone:
		case <-time.After(goneWithin):
			d.Logf("%s is still in use: another process has a copy of the mount", served)
		}
	})
	d.command("mount", "-o", "loop", filepath.Join(served, sickName), d.dir)
}

// unmount takes the disk away, if there is one.
func (d *sickDisk) unmount() {
	if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
		d.Error(err)
	}
}

func (d *sickDisk) command(args ...string) {
	d.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		programs.Needs(d.T, "a disk that fails needs loop devices and ext4: %v: %v\n%s", args, err, out)
	}
}

// fail has all that is read from the device, or written to it, be errors.
func (d *sickDisk) fail() { d.file.sick.Store(true) }

// turnReadOnly has the file system do what it does when it has found an error.
func (d *sickDisk) turnReadOnly() {
	d.Helper()
	if out, err := exec.Command("mount", "-o", "remount,abort", d.dir).CombinedOutput(); err != nil {
		d.Logf("remount,abort: %v: %s", err, out) // it may say that it is read-only now
	}
	if err := os.WriteFile(filepath.Join(d.dir, "written"), nil, 0o600); !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EIO) {
		d.Errorf("the disk that was to turn read-only is written: %v", err)
	}
}

const sickName = "image"

// A sickFolder has the one file.
type sickFolder struct {
	fs.Inode
	file *sickFile
}

func (s *sickFolder) OnAdd(ctx context.Context) {
	s.AddChild(sickName, s.NewPersistentInode(ctx, s.file, fs.StableAttr{Mode: syscall.S_IFREG}), false)
}

// A sickFile passes on what is read and written, or fails.
type sickFile struct {
	fs.Inode
	backing *os.File
	sick    atomic.Bool
}

var _ interface {
	fs.NodeGetattrer
	fs.NodeOpener
	fs.NodeReader
	fs.NodeWriter
	fs.NodeFsyncer
} = (*sickFile)(nil)

func (s *sickFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := s.backing.Stat()
	if err != nil {
		return fs.ToErrno(err)
	}
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(info.Size())
	return 0
}

func (s *sickFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, 0, 0
}

func (s *sickFile) Read(_ context.Context, _ fs.FileHandle, p []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	if s.sick.Load() {
		return nil, syscall.EIO
	}
	n, err := s.backing.ReadAt(p, at)
	if n == 0 && err != nil {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(p[:n]), 0
}

func (s *sickFile) Write(_ context.Context, _ fs.FileHandle, p []byte, at int64) (uint32, syscall.Errno) {
	if s.sick.Load() {
		return 0, syscall.EIO
	}
	n, err := s.backing.WriteAt(p, at)
	return uint32(n), fs.ToErrno(err)
}

func (s *sickFile) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	if s.sick.Load() {
		return syscall.EIO
	}
	return 0
}
