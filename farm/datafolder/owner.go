package datafolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// releasePatience is how long a killed process may take until the kernel has unlocked its folder:
	// first it frees the memory and the mounts of that process. releasePause is between two tries.
	releasePatience, releasePause = 5 * time.Second, 20 * time.Millisecond
)

// An owner is the process that a folder names as its own.
type owner struct {
	pid     int // 0: unknown
	program string
}

// A usedError means that another process has locked a folder.
type usedError struct {
	dir   string
	owner owner
}

func (e *usedError) Error() string {
	by := ""
	if e.owner.pid != 0 {
		by = fmt.Sprintf(": %d (%s)", e.owner.pid, e.owner.program)
	}
	return fmt.Sprintf("data folder %s is in use by another process%s; each program needs a --data of its own, also a scheduler that stands by", e.dir, by)
}

// isEnding reports whether the process is dead, or was killed and will be. An unknown one is not.
func (o owner) isEnding() bool {
	if o.pid == 0 {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.pid))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
	}
	return endsBy(string(stat))
}

// endsBy reports whether a process with this /proc/PID/stat is dead or killed. It is if its first
// thread is a zombie or has begun to exit, or has a SIGKILL that it has not taken yet.
func endsBy(stat string) bool {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // from the third one on
	const state, flags, pending, exiting = 0, 9 - 3, 31 - 3, 0x4
	if len(fields) <= pending {
		return false
	}
	set := func(field int, bits uint64) bool {
		n, err := strconv.ParseUint(fields[field], 10, 64)
		return err == nil && n&bits != 0
	}
	return fields[state] == "Z" || fields[state] == "X" || set(flags, exiting) || set(pending, 1<<(unix.SIGKILL-1))
}
