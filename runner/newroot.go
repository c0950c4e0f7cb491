package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// building is where the new root is put together: a folder that every system
	// has and of which commands see nothing anyway.
	building = "/tmp"
	// noMore are the attributes of all that commands see of the machine.
	noMore = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// ownFolders at the top of the new root are not the machine's. /sys is, but it is
// shown last: the launcher goes on writing to its cgroups there.
var ownFolders = []string{"dev", "proc", "sys", "tmp", strings.TrimPrefix(SandboxRoot, "/")}

// newRoot gives the calling process, which has a mount namespace of its own, a new
// root: what is at the top of the machine's, read-only, but for what is hidden and
// for folders that are made anew. Of the machine's own mounts none is left.
func (sb *Sandbox) newRoot() error {
	hidden, err := sb.hidden() // while there is a /tmp yet to be resolved
	if err != nil {
		return fmt.Errorf("hide folders: %w", err)
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"part mounts from the machine's", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount a root", func() error {
			return unix.Mount("forerunner", building, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755")
		}},
		{"show the machine's folders", showMachine},
		{"let go of input roots", dropRoots},
		{"make them read-only", func() error { return setAttributes(building, noMore, unix.AT_RECURSIVE) }},
		{"show /sys", func() error { return bind("/sys") }},
		{"hide folders", func() error { return hide(hidden) }},
		{"hide /run", hideRun},
		{"make /dev", makeDev},
		{"make /proc", makeProc},
		{"enter the new root", pivot},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

func setAttributes(dir string, attributes uint64, flags uint) error {
	return unix.MountSetattr(unix.AT_FDCWD, dir, flags, &unix.MountAttr{Attr_set: attributes})
}

// showMachine makes what is at the top of the machine's root appear in the new one,
// with all that is mounted below.
func showMachine() error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(ownFolders, e.Name()) {
			continue
		}
		switch {
		case e.IsDir():
			err = showFolder("/" + e.Name())
		case e.Type() == os.ModeSymlink:
			err = copySymlink("/"+e.Name(), building+"/"+e.Name())
		default:
			continue // nothing that a command could need
		}
		if err != nil {
			return err
		}
	}
	for _, name := range ownFolders {
		if err := os.Mkdir(building+"/"+name, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func showFolder(name string) error {
	if err := os.Mkdir(building+name, 0o755); err != nil {
		return err
	}
	return bind(name)
}

// bind shows a folder of the machine at its place in the new root.
func bind(dir string) error {
	if err := unix.Mount(dir, building+dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return &os.PathError{Op: "bind", Path: dir, Err: err}
	}
	return nil
}

func copySymlink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return os.Symlink(target, to)
}

// cover lays an empty folder over dir in the new root.
func cover(dir string, flags uintptr) error {
	if err := unix.Mount("forerunner", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, "mode=0755"); err != nil {
		return &os.PathError{Op: "cover", Path: dir, Err: err}
	}
	return nil
}

// workerMounts is the source of all that workers mount.
const workerMounts = "forerunner"

// dropRoots lets go of input roots, of this worker and of others: while they are
// mounted here their owners cannot unmount them for good.
func dropRoots() error {
	return detach(func(m mountPoint) bool {
		return m.source == workerMounts && isBelow(m.dir, building) && m.dir != building
	})
}

// hidden lists the folders that are to be out of sight, but for those in the machine's
// /tmp, of which commands see nothing anyway, and those in others of the list.
func (sb *Sandbox) hidden() ([]string, error) {
	above := []string{building}
	for _, dir := range sb.Hide {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(above, func(h string) bool { return isBelow(real, h) }) {
			above = append(above, real)
		}
	}
	return above[1:], nil
}

// hide covers folders, and lets go of what is mounted in them.
func hide(dirs []string) error {
	for _, dir := range dirs {
		if err := detach(func(m mountPoint) bool { return isBelow(m.dir, building+dir) }); err != nil {
			return err
		}
		if err := cover(building+dir, unix.MS_RDONLY); err != nil {
			return err
		}
	}
	return nil
}

// isBelow reports whether path is dir or in it; both are clean.
func isBelow(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

// detach unmounts what unwanted picks, the newest first.
func detach(unwanted func(mountPoint) bool) error {
	points, err := mountPoints()
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(points) {
		if !unwanted(p) {
			continue
		}
		err := unix.Unmount(p.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "unmount", Path: p.dir, Err: err}
		}
	}
	return nil
}

// mountPoint is a line of proc_pid_mountinfo(5).
type mountPoint struct{ dir, source string }

// mountPoints lists the mounts of this namespace, in the order of mounting.
func mountPoints() ([]mountPoint, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []mountPoint
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		if f, s := strings.Fields(before), strings.Fields(after); len(f) > 4 && len(s) > 1 {
			points = append(points, mountPoint{unescape.Replace(f[4]), s[1]})
		}
	}
	return points, nil
}

// unescape undoes what proc_pid_mountinfo(5) does to odd characters.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// hideRun covers /run: with a socket in it (of a container engine, say) a command
// could reach far. Symlinks stay, and the folder that name resolution needs.
func hideRun() error {
	const run = building + "/run"
	if info, err := os.Lstat(run); err != nil || !info.IsDir() {
		return nil
	}
	if err := cover(run, 0); err != nil {
		return err
	}
	entries, err := os.ReadDir("/run")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type() == os.ModeSymlink {
			if err := copySymlink("/run/"+e.Name(), run+"/"+e.Name()); err != nil {
				return err
			}
		}
	}
	if conf, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil && strings.HasPrefix(conf, "/run/") {
		dir := filepath.Dir(conf)
		if err := os.MkdirAll(building+dir, 0o755); err != nil {
			return err
		}
		if err := bind(dir); err != nil {
			return err
		}
		if err := setAttributes(building+dir, noMore, 0); err != nil {
			return err
		}
	}
	return setAttributes(run, noMore, 0)
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

func makeDev() error {
	const dev = building + "/dev"
	if err := unix.Mount("forerunner", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755"); err != nil {
		return err
	}
	for _, d := range devices {
		path := dev + "/" + d.name
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return &os.PathError{Op: "make device", Path: d.name, Err: err}
		}
		if err := os.Chmod(path, 0o666); err != nil { // whatever the umask
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
	err := unix.Mount("forerunner", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
	if err != nil {
		return err
	}
	return setAttributes(dev, unix.MOUNT_ATTR_RDONLY, 0)
}

// kernelFiles in /proc change the machine when root writes to them, whatever
// capabilities it has lost.
var kernelFiles = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "dynamic_debug"}

func makeProc() error {
	const proc = building + "/proc"
	if err := unix.Mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	for _, name := range kernelFiles {
		path := proc + "/" + name
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

// pivot makes the new root the root of this process and lets go of the old one.
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
