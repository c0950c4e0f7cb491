package rot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/test/programs"
)

// A rotDisk is an ext4 file system in a file. Bytes in that file can be changed without the file
// system or the kernel noticing, as in a failing disk.
type rotDisk struct {
	image, dir string
	backing    *os.File
}

// rotDiskName distinguishes this test's disks from others, and has the process that they belong to.
var rotDiskName = regexp.MustCompile(`/rot-(\d+)-[a-z0-9-]+$`)

// mountRotDisk makes a disk until the end of the test.
func mountRotDisk(f *programs.Test, name string, megabytes int64) *rotDisk {
	f.Helper()
	name = fmt.Sprintf("rot-%d-%s", os.Getpid(), name)
	d := &rotDisk{image: filepath.Join(f.Dir, name+".image"), dir: filepath.Join(f.Dir, name)}
	var err error
	if d.backing, err = os.OpenFile(d.image, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = d.backing.Close() })
	if err := errors.Join(d.backing.Truncate(megabytes<<20), os.Mkdir(d.dir, 0o755)); err != nil {
		f.Fatal(err)
	}
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-b", "4096", d.image},
		// The loop device goes with the mount.
		{"mount", "-o", "loop", d.image, d.dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			programs.Needs(f.T, "rot below a file system needs loop devices and ext4: %v: %v\n%s", args, err, out)
		}
	}
	f.Cleanup(func() {
		if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
			f.Error(err)
		}
	})
	return d
}

// unmountRotDisks unmounts what tests that were killed have left.
func unmountRotDisks(f *programs.Test) {
	f.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		m := rotDiskName.FindStringSubmatch(fields[1])
		if m == nil {
			continue
		}
		if pid, err := strconv.Atoi(m[1]); err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		f.Logf("%s was left by a test that is over: %v", fields[1], unix.Unmount(fields[1], unix.MNT_DETACH))
	}
}

// fiemap is struct fiemap of linux/fiemap.h with room for the extents of small files.
type fiemap struct {
	start, length                      uint64
	flags, mapped, extentCount, unused uint32
	extents                            [32]struct {
		logical, physical, length uint64
		unused                    [2]uint64
		flags                     uint32
		unused2                   [3]uint32
	}
}

const (
	fsIocFiemap = 0xC020660B
	fiemapSync  = 1
	// Extents whose physical place is none to write to.
	fiemapUnfit = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
)

// errNoPlace: the file system has not given that part of a file a place of its own.
var errNoPlace = errors.New("no place on the disk")

// place returns where on its disk a byte of a file is.
func place(file *os.File, offset int64) (int64, error) {
	m := fiemap{start: uint64(offset), length: 1, flags: fiemapSync}
	m.extentCount = uint32(len(m.extents))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(&m))); errno != 0 {
		return 0, fmt.Errorf("FIEMAP: %w", errno)
	}
	for _, e := range m.extents[:m.mapped] {
		if e.flags&fiemapUnfit == 0 && e.logical <= uint64(offset) && uint64(offset) < e.logical+e.length {
			return int64(e.physical + uint64(offset) - e.logical), nil
		}
	}
	return 0, errNoPlace
}

// rot flips a byte of a file on the disk, and reports whether readers get the changed byte. The
// kernel may still have the old one in memory, as for a mapped file.
func (d *rotDisk) rot(path string, offset int64, flip byte) (seen bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return false, err
	}
	at, err := place(file, offset)
	if err != nil {
		return false, err
	}
	var was, disk, now [1]byte
	if _, err := file.ReadAt(was[:], offset); err != nil {
		return false, err
	}
	if _, err := d.backing.ReadAt(disk[:], at); err != nil {
		return false, err
	}
	disk[0] ^= flip
	if _, err := d.backing.WriteAt(disk[:], at); err != nil {
		return false, err
	}
	if err := forget(file); err != nil {
		return false, err
	}
	_, err = file.ReadAt(now[:], offset)
	return now[0] != was[0], err
}

// forget has the kernel drop what it holds of a file in memory.
func forget(file *os.File) error {
	return errors.Join(file.Sync(), unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
}
