package mounts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// deadLockWait is how long a process that was killed and freed may take to
	// give its locks back.
	deadLockWait = 5 * time.Second
	// aliveWait is how long a process must appear alive to count as alive: one that was just killed
	// appears alive for a moment.
	aliveWait = 100 * time.Millisecond
)

// errUnending: no mount that is known here blocks this process.
var errUnending = errors.New("it is locked by a process that was killed, but does not end")

// Lock locks a folder. A process that was killed while one of its threads waited for its own FUSE
// mount cannot end: a dead thread took the request, and the connection ends only when the waiting
// thread ends. Such a process still holds its locks. To free them, Lock aborts its mounts, which
// are below mountDir.
func Lock(lock *os.File, mountDir string) error {
	try := func() error { return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
	err := try()
	alive := time.Now().Add(aliveWait)
	for end := time.Now().Add(deadLockWait); errors.Is(err, unix.EWOULDBLOCK); err = try() {
		pid, holderErr := lockHolder(lock)
		switch {
		case holderErr != nil:
			return errors.Join(err, holderErr)
		case pid != 0 && Dying(pid):
			if err := Detach(mountDir); err != nil {
				return fmt.Errorf("free process %d, which was killed: %w", pid, err)
			}
		case time.Now().After(alive):
			return try() // it may have ended between the two looks
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: process %d", errUnending, pid)
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

// Free ends the process that holds the lock of a folder, if it was killed and cannot end, and waits for
// its end. Callers that need other resources of such a process call it first. If a living process
// has the lock, Free does nothing.
func Free(path string) error {
	dir, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return fmt.Errorf("free %s: %w", path, err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("free %s: %w", dir, err)
	}
	defer func() { _ = lock.Close() }()
	if err := Lock(lock, dir); err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("free %s: %w", dir, err)
	}
	return nil
}

// lockHolder returns the process that has the lock of flock(2) on file, 0 if
// none is known here: it may be in another pid namespace.
func lockHolder(file *os.File) (pid int, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return 0, err
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	return parseLocks(f, &st)
}

// parseLocks finds the process that locked the file of st in a table like that of proc_locks(5):
// number, kind, mode, access, process, device:inode, range.
func parseLocks(r io.Reader, st *unix.Stat_t) (pid int, err error) {
	name := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 5 && f[1] == "FLOCK" && f[5] == name {
			pid, err := strconv.Atoi(f[4])
			return max(pid, 0), err
		}
	}
	return 0, lines.Err()
}

// Dying reports whether a process was killed and has not ended yet. Its main thread is then a
// zombie, or waits with the signal pending.
func Dying(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state comes after the name, which may hold anything.
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return bytes.HasPrefix(rest, []byte("Z")) || Killed(uint32(pid))
}

// Killed reports whether the thread has a SIGKILL pending, or is gone. A signal whose default
// action ends the process shows as SIGKILL of all its threads.
func Killed(thread uint32) bool {
	if thread == 0 {
		return false
	}
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(thread), 10) + "/status")
	if err != nil {
		// Other errors, such as no descriptor for the file, do not say this.
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
	}
	const sigkill = 1 << (9 - 1)
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "SigPnd" && string(name) != "ShdPnd" {
			continue
		}
		set, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
		if err == nil && set&sigkill != 0 {
			return true
		}
	}
	return false
}
