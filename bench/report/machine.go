package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
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

// A CPUUse tells how much CPU time programs other than this one take.
type CPUUse struct{ all, busy, own time.Duration }

// NewCPUUse begins to measure.
func NewCPUUse() CPUUse {
	all, busy := machineTimes()
	return CPUUse{all, busy, CPUTime()}
}

// Others returns the share of the machine's CPU time that others have had since the beginning:
// other programs, the kernel for itself, and other machines on the same host. It is 0 if this is
// unknown.
func (u CPUUse) Others() float64 { return u.OthersThan(0) }

// OthersThan is Others where so much CPU time was that of children of this program.
func (u CPUUse) OthersThan(children time.Duration) float64 {
	now := NewCPUUse()
	if now.all <= u.all {
		return 0
	}
	return max(0, float64(now.busy-u.busy-(now.own-u.own)-children)/float64(now.all-u.all))
}

// machineTimes returns the CPU time of all CPUs since the machine started, and how much of it was
// not idle; 0 if it is unknown.
func machineTimes() (all, busy time.Duration) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	return timesOf(string(text))
}

// timesOf is machineTimes of the text of /proc/stat (proc(5)).
func timesOf(text string) (all, busy time.Duration) {
	const tick, idle, wait, guest = time.Second / 100, 3, 4, 8 // USER_HZ; columns; user has guest, too
	line, _, _ := strings.Cut(text, "\n")
	columns := strings.Fields(line)
	if len(columns) < wait+2 || columns[0] != "cpu" {
		return 0, 0
	}
	for i, column := range columns[1:] {
		ticks, err := strconv.ParseInt(column, 10, 64)
		if err != nil || i >= guest {
			break
		}
		if all += time.Duration(ticks) * tick; i != idle && i != wait {
			busy += time.Duration(ticks) * tick
		}
	}
	return all, busy
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
