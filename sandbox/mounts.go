package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/paths"
)

// Folders are a command's own folders, by their paths outside of the sandbox.
type Folders struct {
	Root    string // the input root, visible as Root
	TempDir string // a fresh folder, visible as /tmp and /var/tmp
}

// Inside returns the path by which the command sees path, which must be in f.Root, or an error.
func (f Folders) Inside(path string) (string, error) {
	switch {
	case !filepath.IsAbs(f.Root) || !filepath.IsAbs(f.TempDir):
		return "", errors.New("a sandbox requires an input root and a temporary folder")
	case !paths.Below(filepath.Clean(path), filepath.Clean(f.Root)):
		return "", fmt.Errorf("working directory %q is not in the input root", path)
	}
	return filepath.Join(Root, strings.TrimPrefix(path, f.Root)), nil
}

// Mount is a file or folder of a command as an unattached mount. Its descriptor is sent to the
// launcher, which has other mounts, where paths of the worker do not work.
type Mount struct {
	FD       int
	At       string // its path in the sandbox
	ReadOnly bool
}

// sharedMemory is the folder of POSIX shared memory.
const sharedMemory = "/dev/shm"

// networkFiles are the machine's files that commands with its network need to find servers.
var networkFiles = []string{"/etc/resolv.conf", "/etc/hosts"}

// Take makes the mounts of a command. The caller closes their descriptors, even after an error.
func Take(f Folders, p *Policy) ([]Mount, error) {
	var mounts []Mount
	for _, d := range []struct{ path, at string }{{f.Root, Root}, {f.TempDir, "/tmp"}} {
		fd, err := openTree(d.path)
		if err != nil {
			return mounts, &os.PathError{Op: "take a mount of", Path: d.path, Err: err}
		}
		mounts = append(mounts, Mount{FD: fd, At: d.at})
	}
	if p.NoNetwork {
		return mounts, nil
	}
	for _, path := range networkFiles { // as they are now; a machine may lack one
		if fd, err := openTree(path); err == nil {
			mounts = append(mounts, Mount{FD: fd, At: path, ReadOnly: true})
		}
	}
	return mounts, nil
}

func openTree(path string) (int, error) {
	return unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

// attach mounts it in its place.
func (m Mount) attach() error {
	var attributes uint64 = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	if m.ReadOnly {
		attributes = noMore
	}
	err := unix.MountSetattr(m.FD, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attributes})
	if err == nil {
		err = unix.MoveMount(m.FD, "", unix.AT_FDCWD, m.At, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return &os.PathError{Op: "mount", Path: m.At, Err: err}
	}
	return nil
}

// mount completes the launcher's root for this command.
func mount(mounts []Mount, p *Policy) error {
	for _, m := range mounts {
		if err := m.attach(); err != nil {
			return err
		}
	}
	if err := unix.Mount("/tmp", varTmp, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mount", Path: varTmp, Err: err}
	}
	if p.User.isRoot() {
		return protectKernel()
	}
	return nil
}

// kernelFiles in /proc change the machine when root writes to them, whatever its capabilities.
// Other users cannot write them, nor can root of a namespace, which could not mount a /proc of its
// own if these were covered.
var kernelFiles = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "dynamic_debug"}

// protectKernel makes them read-only.
func protectKernel() error {
	for _, name := range kernelFiles {
		path := "/proc/" + name
		err := unix.Mount(path, path, "", unix.MS_BIND, "")
		if errors.Is(err, unix.ENOENT) {
			continue // not every kernel has it
		}
		if err == nil {
			err = setAttributes(path, unix.MOUNT_ATTR_RDONLY, 0)
		}
		if err != nil {
			return &os.PathError{Op: "protect", Path: path, Err: err}
		}
	}
	return nil
}
