package records

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
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
	// maxSetAside limits how many damaged files are kept for each file.
	maxSetAside = 3
)

// openFile opens or creates the file at path, and renames a damaged one.
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
		var db *bbolt.DB
		asWritten, fault := isAsWritten(path, file)
		switch {
		case fault == nil && asWritten:
			db, fault = openLocked(path, file, false)
		case fault == nil:
			fault = renewFile(path, file)
		}
		if fault == nil && db != nil {
			return db, file.Close() // db has its own descriptor
		}
		if errors.Is(fault, errDamaged) {
			aside, err := setAside(path)
			if err == nil {
				log.Warn("records are lost: their file is damaged and was set aside; a new one begins",
					zap.String("path", path), zap.String("set_aside", aside), zap.Error(fault))
			}
			fault = err
		}
		if errors.Is(fault, berrors.ErrTimeout) {
			fault = nil // another process has locked a new file at path
		}
		// Closing unlocks the file. A process that waited for the lock then sees that path names
		// another file.
		if err := errors.Join(fault, file.Close()); err != nil {
			return nil, err
		}
	}
}

// sumPath returns the name of the file with the checksum, which Close writes. bbolt trusts its
// file: if a page is damaged, bbolt crashes the program, even in its own goroutines, or takes all
// memory. So bbolt may write only to a file that is byte for byte as bbolt left it. Any other file,
// after a crash or after damage on the disk, is read carefully and rewritten.
func sumPath(path string) string { return path + ".sum" }

// sumOf returns the content of the checksum's file.
func sumOf(file io.Reader) (string, error) {
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, file)
	return fmt.Sprintf("crc32c %08x of %d bytes\n", h.Sum32(), n), err
}

// noteSum writes the checksum of the file at path, which must be complete and locked.
func noteSum(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	sum, err := sumOf(file)
	if err != nil {
		return err
	}
	return os.WriteFile(sumPath(path), []byte(sum), 0o600)
}

// isAsWritten reports whether a file matches its checksum, and removes the checksum. An empty file
// has no checksum.
func isAsWritten(path string, file *os.File) (bool, error) {
	noted, err := os.ReadFile(sumPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err = errors.Join(err, os.Remove(sumPath(path))); err != nil {
		return false, err
	}
	sum, err := sumOf(io.NewSectionReader(file, 0, math.MaxInt64))
	return sum == string(noted), err
}

// copyBytes limits one transaction when a file is rewritten.
const copyBytes = 16 << 20

// renewFile copies the content of a file to a new file, and replaces the old one, with its
// checksum, for the next process that locks path. The error wraps errDamaged if a part cannot be
// read.
func renewFile(path string, file *os.File) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return guard(func() error {
		to, err := bbolt.Open(next, 0o600, boltOptions())
		if err != nil {
			return err
		}
		if err = errors.Join(copyFile(to, path, file), to.Close()); err != nil {
			return err
		}
		if err := os.Rename(next, path); err != nil {
			return err
		}
		return noteSum(path)
	})
}

// copyFile copies all records; an empty file has none. Its caller must handle faults and panics.
func copyFile(to *bbolt.DB, path string, file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	from, err := openLocked(path, file, true)
	if err != nil {
		return err
	}
	err = from.View(func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("%w: it has %d bytes of %d", errDamaged, info.Size(), tx.Size())
		}
		return tx.ForEach(readBucket)
	})
	if err == nil {
		err = damageOf(bbolt.Compact(to, from, copyBytes))
	}
	return errors.Join(err, from.Close())
}

// readBucket reads a bucket. The order of keys reveals a page that is read twice.
func readBucket(_ []byte, b *bbolt.Bucket) error {
	var last []byte
	return b.ForEach(func(k, v []byte) error {
		if v == nil || last != nil && bytes.Compare(last, k) >= 0 {
			return fmt.Errorf("%w: a record is a bucket, or follows one that it precedes", errDamaged)
		}
		last = k
		_ = crc32.Checksum(v, castagnoli)
		return nil
	})
}

// lockFile opens the file at path, creates it if necessary, and locks it as bbolt does.
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

// isAt reports whether path names file.
func isAt(file *os.File, path string) bool {
	ours, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(ours, named)
}

// boltOptions returns the options for all files.
func boltOptions() *bbolt.Options {
	return &bbolt.Options{
		Timeout:        lockPause, // for a lock that this process already holds
		NoFreelistSync: true,      // bbolt collects the list of free pages when it opens a file
		FreelistType:   bbolt.FreelistMapType,
		NoStatistics:   true,
	}
}

// openLocked opens a locked file. The file stays open and locked whatever the result.
func openLocked(path string, file *os.File, readOnly bool) (db *bbolt.DB, err error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open again: %w", err)
	}
	o := boltOptions()
	o.ReadOnly = readOnly
	o.OpenFile = func(string, int, os.FileMode) (*os.File, error) { return os.NewFile(uintptr(fd), path), nil }
	err = guard(func() (err error) {
		db, err = bbolt.Open(path, 0o600, o)
		return err
	})
	return db, damageOf(err)
}

// damageOf turns an error of bbolt that does not come from the system into errDamaged.
func damageOf(err error) error {
	var errno unix.Errno
	if err == nil || errors.As(err, &errno) || errors.Is(err, berrors.ErrTimeout) || errors.Is(err, errDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}

// setAside renames the file at path, which the caller has locked, and returns the new name. It
// keeps only the last few damaged files.
func setAside(path string) (string, error) {
	aside := path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000000")
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("set damaged file aside: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(globQuote(filepath.Dir(path)), globQuote(filepath.Base(path))+".damaged-*"))
	if err != nil {
		return aside, nil
	}
	slices.Sort(names) // names have times
	for len(names) > maxSetAside {
		if err := os.Remove(names[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("remove file set aside earlier: %w", err)
		}
		names = names[1:]
	}
	return aside, nil
}

// globQuote returns a pattern that matches only s.
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
