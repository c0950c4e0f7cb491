package mounts

import (
	"errors"
	"fmt"
	"os"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/crew"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/vfs/fusedev"
)

// FUSEDevice is the device that FUSE needs.
const FUSEDevice = "/dev/fuse"

// FUSE is a FUSE mount and its server. After a failure of Start, call Stop.
type FUSE struct {
	dir     string // the mount point
	mounted bool
	device  *fusedev.Conn
	served  chan struct{} // closed when the device's goroutines are gone; nil if there are none
	pin     int           // descriptor of the mount, which keeps its number ours; -1 for none
	crew    *crew.Crew
}

// NewFUSE returns a FUSE that is not mounted yet; dir is the mount point. The Crew, which may be
// nil, serves it.
func NewFUSE(dir string, c *crew.Crew) *FUSE { return &FUSE{dir: dir, pin: -1, crew: c} }

// Dir returns the mount point.
func (c *FUSE) Dir() string { return c.dir }

// Moved says that the mount point has moved there, with a folder around it.
func (c *FUSE) Moved(dir string) { c.dir = dir }

// Device returns the connection to the kernel, after Start.
func (c *FUSE) Device() *fusedev.Conn { return c.device }

// Start mounts FUSE and serves it. It opens the device and calls mount(2) itself, so that the device
// is closed in children and no helper program is ever needed.
func (c *FUSE) Start(serve fuse.RawFileSystem, o *fuse.MountOptions) error {
	fd, err := unix.Open(FUSEDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &Error{What: "fuse device", Err: err}
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other,default_permissions,max_read=%d",
		fd, os.Geteuid(), os.Getegid(), o.MaxWrite)
	err = unix.Mount(names.MountSource, c.dir, "fuse.forerunner", unix.MS_RDONLY|unix.MS_NODEV, data)
	if err != nil {
		_ = unix.Close(fd)
		return &Error{What: "fuse", Err: err}
	}
	c.mounted = true
	if c.device, err = fusedev.Open(fd, serve, o); err != nil {
		return &Error{What: "fuse", Err: err}
	}
	c.served = make(chan struct{})
	c.crew.Go(func() {
		defer close(c.served)
		c.device.Serve()
	})
	if c.pin, err = unix.Open(c.dir, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return &Error{What: "fuse", Err: err}
	}
	return nil
}

// Stop ends the connection, even if it is in use, and returns when all goroutines that answer it have
// ended. It may be called again.
func (c *FUSE) Stop() error {
	var err error
	if c.mounted {
		c.mounted = false
		err = c.unmount()
	}
	if c.served != nil {
		<-c.served
	}
	return err
}

func (c *FUSE) unmount() error {
	if c.pin >= 0 {
		defer func() {
			_ = unix.Close(c.pin)
			c.pin = -1 // the number may be another file's
		}()
	}
	// MNT_FORCE aborts the connection.
	err := unix.Unmount(c.dir, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || c.pin < 0 {
		return err
	}
	// The action was faster and left us only the number of the connection, which nobody else gets
	// as long as we hold the pin.
	var st unix.Statx_t // an empty mask causes no request: the connection may be dead
	if err := unix.Statx(c.pin, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return fmt.Errorf("find the FUSE connection of %s: %w", c.dir, err)
	}
	return abort(st.Dev_minor, c.dir)
}

// abort ends a FUSE connection by its number.
func abort(conn uint32, dir string) error {
	control, done, err := openControl(dir)
	if err != nil {
		return fmt.Errorf("mount fusectl: %w", err)
	}
	fd, err := unix.Openat(control, fmt.Sprintf("%d/abort", conn), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte("1"))
		_ = unix.Close(fd)
	}
	if errors.Is(err, unix.ENOENT) {
		err = nil // it ended already
	}
	return errors.Join(err, done())
}

// openControl opens the control file system of FUSE, which is not mounted everywhere. It is mounted
// nowhere, as the folder of a mount may be gone; before Linux 5.2, and where a container's filter of
// system calls does not know that way, it is temporarily mounted on the empty folder dir.
func openControl(dir string) (fd int, done func() error, err error) {
	const flags = unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC
	fs, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		if err := unix.Mount(names.MountSource, dir, "fusectl", flags, ""); err != nil {
			return -1, nil, err
		}
		unmount := func() error { return Unmount(dir, unix.MNT_DETACH) }
		if fd, err = unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return -1, nil, errors.Join(err, unmount())
		}
		return fd, func() error { return errors.Join(unix.Close(fd), unmount()) }, nil
	}
	if err != nil {
		return -1, nil, err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, nil, err
	}
	fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	return fd, func() error { return unix.Close(fd) }, err
}
