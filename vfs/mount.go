package vfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

const (
	fuseDevice = "/dev/fuse"
	// cachedRead is the largest read that is asked of this process. With
	// passthrough it is asked for none, and small buffers are quicker to make.
	cachedRead      = 1 << 20
	passthroughRead = 128 << 10
	// maxBackground bounds the reads through the page cache that the kernel lets us
	// have at a time. Those of arriving files may wait for long, in front of others.
	maxBackground = 64
)

// mount makes the folders of the root and shows both layers. What it has done
// when it fails is for release to undo.
func (r *Root) mount(ctx context.Context) error {
	if r.isPlain() {
		return r.upper.show()
	}
	if err := r.makeFolder(r.pointPath(), &r.pointMade); err != nil {
		return err
	}
	if err := r.makeFolder(r.layerPath(), &r.layerMade); err != nil {
		return err
	}
	if r.inMemory() {
		if err := r.mountLayer(); err != nil {
			return err
		}
	}
	if err := r.lower.Show(ctx); err != nil {
		return err
	}
	return r.upper.show()
}

// makeFolder makes a folder that what the action sees is in. If the root belongs to
// somebody else than the worker, only his group may pass through it: what is in the
// root, whatever its mode, is nothing to the owners of other roots.
func (r *Root) makeFolder(dir string, made *bool) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	*made = true
	if int(r.owner.UID) == os.Geteuid() {
		return nil
	}
	return errors.Join(os.Chown(dir, -1, int(r.owner.GID)), os.Chmod(dir, 0o710))
}

// layerName is the mount point of a writable layer in memory.
const layerName = "layer"

// inMemory reports whether the writable layer is not on the disk.
func (r *Root) inMemory() bool { return r.fs.upperMemory > 0 && r.fs.method == FUSE }

// mountLayer makes the folder of the writable layer a file system in memory.
func (r *Root) mountLayer() error {
	// An inode costs about a kilobyte, which size does not count.
	data := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", r.fs.upperMemory, max(r.fs.upperMemory>>10, 1024))
	if err := unix.Mount(names.MountSource, r.layerPath(), "tmpfs", unix.MS_NODEV, data); err != nil {
		return &mounts.Error{What: "tmpfs", Err: err}
	}
	r.layerUp = true
	return nil
}

// mountLower mounts FUSE and starts to serve it. It calls mount(2) itself and
// gives go-fuse the device, so that the device is closed in children and no
// helper program is ever looked for.
func (r *Root) mountLower() error {
	fd, err := unix.Open(fuseDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &mounts.Error{What: "fuse device", Err: err}
	}
	maxRead := cachedRead
	if r.fs.passthrough {
		maxRead = passthroughRead
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other,default_permissions,max_read=%d",
		fd, os.Geteuid(), os.Getegid(), maxRead)
	err = unix.Mount(names.MountSource, r.lowerPath(), "fuse.forerunner", unix.MS_RDONLY|unix.MS_NODEV, data)
	if err != nil {
		_ = unix.Close(fd)
		return &mounts.Error{What: "fuse", Err: err}
	}
	r.lowerUp = true
	lower := &lowerFS{RawFileSystem: fuse.NewDefaultRawFileSystem(), root: r}
	var served fuse.RawFileSystem = lower
	if r.fs.requests != nil {
		served = &countedFS{lower, r.fs.requests}
	}
	server, err := fuse.NewServer(served, fmt.Sprintf("/dev/fd/%d", fd), r.fuseOptions(maxRead))
	if err != nil {
		return &mounts.Error{What: "fuse", Err: err}
	}
	r.server = server
	r.blobs.unregister = func(id int32) { server.UnregisterBackingFd(id) }
	r.served = make(chan struct{})
	go func() {
		defer close(r.served)
		server.Serve()
	}()
	if r.pin, err = unix.Open(r.lowerPath(), unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return &mounts.Error{What: "fuse", Err: err}
	}
	return nil
}

// unmountLower ends the FUSE connection, whoever still uses it.
func (r *Root) unmountLower() error {
	if r.pin >= 0 {
		defer func() { _ = unix.Close(r.pin) }()
	}
	// MNT_FORCE aborts the connection.
	err := unix.Unmount(r.lowerPath(), unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || r.pin < 0 {
		return err
	}
	// The action was faster and left us only the number of the connection,
	// which is nobody else's as long as we hold the pin.
	var st unix.Statx_t // asking for nothing asks nobody: the connection may be dead
	if err := unix.Statx(r.pin, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return fmt.Errorf("find the FUSE connection of %s: %w", r.lowerPath(), err)
	}
	return abort(st.Dev_minor, r.lowerPath())
}

// abort ends a FUSE connection by its number. The control file system, which is
// not mounted everywhere, is mounted on the empty folder dir meanwhile.
func abort(conn uint32, dir string) error {
	if err := unix.Mount(names.MountSource, dir, "fusectl", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount fusectl: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(conn), "abort"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("1")
		_ = f.Close()
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil // it ended already
	}
	return errors.Join(err, mounts.Unmount(dir, unix.MNT_DETACH))
}

func (r *Root) fuseOptions(maxRead int) *fuse.MountOptions {
	log := r.fs.log.With(zap.String("root", r.spec.Name))
	// What go-fuse has to say is about answers that came too late to be wanted.
	std, err := zap.NewStdLogAt(log, zap.DebugLevel)
	if err != nil {
		std = zap.NewStdLog(zap.NewNop())
	}
	o := &fuse.MountOptions{
		MaxWrite:             maxRead,
		MaxBackground:        maxBackground,
		DisableXAttrs:        true,
		EnableSymlinkCaching: true,
		// Nobody but us could change an input, so no cache is ever out of date.
		ExplicitDataCacheControl: true,
		ExtraCapabilities:        fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_NO_OPENDIR_SUPPORT,
		// A listing that comes with attributes would count as a look at every entry.
		DisableReadDirPlus: r.spec.OnLook != nil,
		MaxStackDepth:      1, // leaves room for the overlay
		Logger:             std,
		PanicHandler: func(v any) fuse.Status {
			log.Error("panic while serving an input root", zap.Any("panic", v), zap.Stack("stack"))
			return fuse.EIO
		},
	}
	if !r.fs.passthrough {
		o.DisabledCapabilities = fuse.CAP_PASSTHROUGH
	}
	return o
}

// release undoes mount, however far it came. The order matters: the overlay
// holds the FUSE layer, and only when FUSE is aborted are all answers that
// somebody waits for an error, and all of the server's goroutines at an end.
func (r *Root) release() error {
	r.cancel()
	errs := []error{r.upper.hide(), r.lower.Hide()}
	r.loads.Wait()
	r.blobs.closeFiles()
	errs = append(errs, r.removeFolders())
	r.releaseGrafts()
	r.fs.forget(r.spec.Name)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("release input root %q: %w", r.spec.Name, err)
	}
	return nil
}

// removeFolders removes the layer with all it holds, in its own time, and the
// mount points only if empty.
func (r *Root) removeFolders() error {
	var errs []error
	switch {
	case r.layerUp:
		errs = append(errs, mounts.Unmount(r.layerPath(), unix.MNT_DETACH), mounts.RemoveEmpty(r.layerPath()))
	case r.layerMade && r.inMemory():
		errs = append(errs, mounts.RemoveEmpty(r.layerPath()))
	case r.layerMade:
		errs = append(errs, r.fs.trash.Put(r.layerPath()))
	}
	if r.pointMade {
		for _, dir := range []string{filepath.Join(r.pointPath(), "root"), r.lowerPath(), r.pointPath()} {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, &os.PathError{Op: "remove", Path: dir, Err: err})
			}
		}
	}
	return errors.Join(errs...)
}
