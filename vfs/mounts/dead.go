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
	// aliveWait is how long a process must have looked alive to be believed:
	// one that has just been killed does so for a moment.
	aliveWait = 100 * time.Millisecond
)

// errUnending: whatever such a process waits for is no mount that is known here.
var errUnending = errors.New("it is locked by a process that was killed, but does not end")

// Lock takes the lock of a folder. A process that was killed while one of
// its own threads waited for a FUSE mount that it served itself cannot end: the
// request was taken by a thread that is gone, and what would end the connection
// is the end of the thread that waits. Such a process still has its locks, so
// the mounts below mountDir, which are its own, are aborted to let it go.
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

// Free has the process end that holds the lock of dir, if it was killed and cannot, and waits for its end. Whoever
// wants something else that such a process may hold calls it first. That a living one has the lock is no error.
func Free(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return fmt.Errorf("free %s: %w", dir, err)
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

// parseLocks finds who locked the file of st in a table like that of
// proc_locks(5): number, kind, mode, access, process, device:inode, range.
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

// Dying reports whether a process was killed and has not ended yet. Its main
// thread is a zombie then, or waits with the signal pending.
func Dying(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state comes after the name, which may hold anything.
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return bytes.HasPrefix(rest, []byte("Z")) || Killed(uint32(pid))
}

// Killed reports whether the thread has a SIGKILL pending, or is gone. A signal
// whose default action ends the process shows as SIGKILL of all its threads.
func Killed(thread uint32) bool {
	if thread == 0 {
		return false
	}
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(thread), 10) + "/status")
	if err != nil {
		// Anything else, such as no descriptor for the file, says nothing of it.
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
