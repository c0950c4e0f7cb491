package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/mountinfo"
	"github.com/forerunner-build/forerunner/paths"
	"github.com/forerunner-build/forerunner/proto/names"
)

const (
	// building is where the new root is assembled: a folder that every system has. No shown file
	// may be in it.
	building = "/tmp"
	// varTmp is building once more, for each command.
	varTmp = "/var/tmp"
	// noMore are the attributes of all that commands see of the machine.
	noMore = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// ownFolders are created, whatever the machine has at their paths.
var ownFolders = []string{"dev", "proc", "sys", "tmp", "run", "home", "var/tmp", strings.TrimPrefix(Root, "/")}

// newRoot gives the calling process, which has a mount namespace of its own, a new root with the
// machine's files in view, read-only, and the created ones. None of the machine's own mounts is
// left. groups are the cgroups that commands see, terminals those of Options.Terminals.
func (o *Options) newRoot(groups []Cgroup, terminals int) error {
	hidden, err := o.hidden() // while there is a /tmp yet to be resolved
	if err != nil {
		return fmt.Errorf("hide folders: %w", err)
	}
	v := &view{hidden: hidden}
	steps := []struct {
		what string
		do   func() error
	}{
		{"part mounts from the machine's", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount a root", func() error {
			return unix.Mount(names.MountSource, building, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755")
		}},
		{"show the machine's folders", func() error { return v.showMachine(o.Show) }},
		{"make /etc", v.makeEtc},
		{"let go of input roots", dropRoots},
		{"make folders", makeFolders},
		{"make /sys", func() error { return makeSys(groups) }},
		{"make them read-only", func() error { return setAttributes(building, noMore, unix.AT_RECURSIVE) }},
		{"hide folders", v.hide},
		{"make /dev", func() error { return makeDev(terminals) }},
		{"make /proc", makeProc},
		{"enter the new root", pivot},
		{"set the host name", nameHost},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

func makeFolders() error {
	for _, name := range ownFolders {
		if err := os.MkdirAll(building+"/"+name, 0o755); err != nil {
			return err
		}
	}
	return touch(building+"/"+nothing, 0)
}

func setAttributes(dir string, attributes uint64, flags uint) error {
	return unix.MountSetattr(unix.AT_FDCWD, dir, flags, &unix.MountAttr{Attr_set: attributes})
}

// cover lays an empty folder over dir in the new root.
func cover(dir string, flags uintptr) error {
	if err := unix.Mount(names.MountSource, dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, "mode=0755"); err != nil {
		return &os.PathError{Op: "cover", Path: dir, Err: err}
	}
	return nil
}

// dropRoots unmounts input roots, of this worker and of others: while they are mounted here their
// owners cannot unmount them for good.
func dropRoots() error {
	return detach(func(m mountinfo.Mount) bool {
		return m.Source == names.MountSource && paths.Below(m.Point, building)
	})
}

// hidden lists the paths to hide, without those inside others of the list, all of them real paths.
func (o *Options) hidden() ([]string, error) {
	var above []string
	for _, dir := range o.Hide {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, fmt.Errorf("%w: hide: %w", ErrView, err)
		}
		if slices.ContainsFunc(DefaultShow, func(shown string) bool { return paths.Below(shown, real) }) {
			return nil, fmt.Errorf("%w: %s cannot be hidden: commands need its contents", ErrView, dir)
		}
		if !slices.ContainsFunc(above, func(h string) bool { return paths.Below(real, h) }) {
			above = append(above, real)
		}
	}
	return above, nil
}

// detachRounds limits how often detach reads the table of mounts.
const detachRounds = 64

// detach unmounts the mounts of the new root that are in unwanted, the newest first. A worker may give
// an input root another name meanwhile, so that it is not found by the name in the table: detach reads
// that again, and fails if some are always missed.
func detach(unwanted func(mountinfo.Mount) bool) error {
	found := ""
	for range detachRounds {
		all, err := mountinfo.Read()
		if err != nil {
			return err
		}
		found = ""
		for _, m := range slices.Backward(all) {
			if m.Point == building {
				break // what is older is below the new root: its names lead into that
			}
			if !unwanted(m) {
				continue
			}
			found = m.Point
			err := unix.Unmount(m.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return &os.PathError{Op: "unmount", Path: m.Point, Err: err}
			}
		}
		if found == "" {
			return nil
		}
	}
	return fmt.Errorf("%s is still mounted after %d attempts: its folder was renamed each time", found, detachRounds)
}

// devices are the character devices of a sandbox, by their numbers in the kernel's
// list of devices (admin-guide/devices.txt).
var devices = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
}

var deviceLinks = map[string]string{
	"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	"ptmx": "pts/ptmx",
}

func makeDev(terminals int) error {
	const dev = building + "/dev"
	if err := unix.Mount(names.MountSource, dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755"); err != nil {
		return err
	}
	for _, d := range devices {
		path := dev + "/" + d.name
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return &os.PathError{Op: "make device", Path: d.name, Err: err}
		}
		if err := os.Chmod(path, 0o666); err != nil { // independent of the umask
			return err
		}
	}
	for name, target := range deviceLinks {
		if err := os.Symlink(target, dev+"/"+name); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := os.Mkdir(dev+"/"+name, 0o755); err != nil {
			return err
		}
	}
	if err := unix.MoveMount(terminals, "", unix.AT_FDCWD, dev+"/pts", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "mount", Path: dev + "/pts", Err: err}
	}
	return setAttributes(dev, unix.MOUNT_ATTR_RDONLY, 0)
}

func makeProc() error {
	return unix.Mount("proc", building+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// nameHost gives the calling process, which has a namespace of its own for it, the name in
// /etc/hostname: results must not differ by machine.
func nameHost() error {
	if err := unix.Sethostname([]byte("localhost")); err != nil {
		return err
	}
	return unix.Setdomainname([]byte("(none)")) // as the kernel has it at first
}

// pivot makes the new root the root of this process and unmounts the old one.
func pivot() error {
	if err := os.Chdir(building); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err) // an initramfs cannot be left
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the old root: %w", err)
	}
	return os.Chdir("/")
}
