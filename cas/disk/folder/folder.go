package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// A Folder is a store's folder, which belongs to this process until Close.
type Folder struct {
	Dir  string // its absolute path
	log  *zap.Logger
	lock *os.File
}

// Open locks the folder at dir for this process, creates it if needed, and empties TempDir. Notes
// are the names of files in it. Open moves away entries with such a name that are not files,
// because opening them would wait forever.
func Open(dir string, log *zap.Logger, notes ...string) (*Folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f := &Folder{Dir: dir, log: log}
	if err := f.clear(append([]string{filepath.Base(LockPath(dir))}, notes...)); err != nil {
		return nil, err
	}
	if f.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	if err := f.emptyTemp(); err != nil {
		_ = f.lock.Close()
		return nil, err
	}
	return f, nil
}

// Close lets another process open the folder.
func (f *Folder) Close() error { return f.lock.Close() }

// TempDir returns the folder for incomplete files.
func (f *Folder) TempDir() string { return filepath.Join(f.Dir, "tmp") }

// LockPath returns the file that locks dir. It holds the BootID of the last Open of dir.
func LockPath(dir string) string { return filepath.Join(dir, "lock") }

// lockDir locks dir until the file is closed or the process ends.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(LockPath(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	_ = lock.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s is in use by another process", dir)
	}
	return nil, fmt.Errorf("lock %s: %w", dir, err)
}

// emptyTemp makes the folder for temporary files again. It moves away old entries that cannot be
// removed.
func (f *Folder) emptyTemp() error {
	if err := os.RemoveAll(f.TempDir()); err != nil && IsOfProcess(err) {
		return err
	} else if err != nil {
		if moving := f.lose(filepath.Base(f.TempDir()), err); moving != nil {
			return moving
		}
	}
	return os.Mkdir(f.TempDir(), 0o700)
}

// BootID returns an identifier of the current boot; empty if the machine has none.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// SameBoot reports whether NoteBoot was called since the machine booted.
func (f *Folder) SameBoot() bool {
	id := BootID()
	b, err := os.ReadFile(LockPath(f.Dir))
	return err == nil && id != "" && string(b) == id
}

// NoteBoot makes SameBoot true until the machine reboots. If it cannot, for example on a full disk,
// files are only checked once more.
func (f *Folder) NoteBoot() {
	_ = f.lock.Truncate(0)
	_, _ = f.lock.WriteAt([]byte(BootID()), 0)
}

// Free returns how many bytes an unprivileged process may still write to the disk.
func (f *Folder) Free() (bytes int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(f.Dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", f.Dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// IsOfProcess reports whether an open failed because this process, or the machine, temporarily
// lacks a resource, or because of a lease. Any other error means that the file is bad.
func IsOfProcess(err error) bool {
	return slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EINTR, unix.EAGAIN},
		func(e error) bool { return errors.Is(err, e) })
}
