package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine describes this machine and the file system of dir in one line.
func Machine(dir string) string {
	var name unix.Utsname
	kernel := "unknown"
	if unix.Uname(&name) == nil {
		kernel = unix.ByteSliceToString(name.Release[:])
	}
	load := "unknown"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	return fmt.Sprintf("%d cores, Linux %s, %s, load %s at the start", runtime.NumCPU(), kernel, FileSystem(dir), load)
}

// FileSystem returns the name of the file system of dir.
func FileSystem(dir string) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "unknown file system"
	}
	for magic, name := range map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs",
		unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	} {
		if int64(fs.Type) == magic {
			return name
		}
	}
	return fmt.Sprintf("file system %#x", fs.Type)
}

// CPUTime returns the user and system CPU time of this process so far.
func CPUTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ResidentKiB returns the resident memory of this process.
func ResidentKiB() (float64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("read resident memory: %w", err)
	}
	var total, resident float64
	if _, err := fmt.Sscan(string(text), &total, &resident); err != nil {
		return 0, fmt.Errorf("read resident memory: %w", err)
	}
	return resident * float64(os.Getpagesize()) / 1024, nil
}

// ProfileCPU writes a CPU profile of this process to a file until end is called.
func ProfileCPU(file string) (end func() error, err error) {
	f, err := os.Create(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// MemoryBytes is the memory limit that benchmarks pass to serve.PaceMemory.
const MemoryBytes = 8 << 30
