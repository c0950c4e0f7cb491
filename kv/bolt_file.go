package kv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

var (
	errDamaged = errors.New("file is damaged")
	errNotOpen = berrors.ErrDatabaseNotOpen
)

const (
	// lockPause is the pause between two attempts to lock a file.
	lockPause = 20 * time.Millisecond
	// maxSetAside bounds the damaged files that are kept of each file.
	maxSetAside = 3
)

// openFile opens, or begins, the file at path, and sets a damaged one aside.
func openFile(path string, timeout time.Duration, log *zap.Logger) (*bbolt.DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(timeout)
	for {
		file, err := lockFile(path, deadline)
		if err != nil {
			return nil, err
		}
		damage := verifyFile(file)
		if damage == nil {
			return openLocked(path, file)
		}
		if errors.Is(damage, errDamaged) {
			aside, err := setAside(path)
			if err == nil {
				log.Error("records are lost: their file is damaged and was set aside, a new one begins",
					zap.String("path", path), zap.String("set_aside", aside), zap.Error(damage))
			}
			damage = err
		}
		// Closing unlocks. Who waited for the lock sees that the name is another file's now.
		if err := errors.Join(damage, file.Close()); err != nil {
			return nil, err
		}
	}
}

// lockFile opens the file at path, which it makes if need be, and locks it as bbolt does.
func lockFile(path string, deadline time.Time) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && isAt(file, path) {
			return file, nil
		}
		if closed := file.Close(); closed != nil {
			return nil, closed
		}
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock: %w", err)
		}
		if time.Now().After(deadline) {
			return nil, ErrLocked
		}
		time.Sleep(lockPause)
	}
}

// isAt reports whether file is the one that path names.
func isAt(file *os.File, path string) bool {
	ours, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(ours, named)
}

// openLocked opens a file that is locked and good. In an error it closes file.
//
// The list of free pages is not written with each commit, but gathered when the file is opened,
// where it is read as a whole anyway.
func openLocked(path string, file *os.File) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:        lockPause, // for the lock that file has already
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		NoStatistics:   true,
		OpenFile:       func(string, int, os.FileMode) (*os.File, error) { return file, nil },
	})
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return db, nil
}

// setAside renames the file at path, which the caller has locked, and returns its new name. Of
// several set aside it keeps the last few.
func setAside(path string) (string, error) {
	aside := path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000000")
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("set damaged file aside: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(globQuote(filepath.Dir(path)), globQuote(filepath.Base(path))+".damaged-*"))
	if err != nil {
		return aside, nil
	}
	slices.Sort(names) // by time
	for len(names) > maxSetAside {
		if err := os.Remove(names[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("remove file set aside earlier: %w", err)
		}
		names = names[1:]
	}
	return aside, nil
}

// globQuote returns a pattern that matches s alone.
func globQuote(s string) string {
	var quoted []byte
	for i := range len(s) {
		if s[i] == '*' || s[i] == '?' || s[i] == '[' || s[i] == '\\' {
			quoted = append(quoted, '\\')
		}
		quoted = append(quoted, s[i])
	}
	return string(quoted)
}
