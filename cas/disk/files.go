package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/folder"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
	"github.com/forerunner-build/forerunner/eintr"
	tempfolder "github.com/forerunner-build/forerunner/vfs/folder"
)

// A layout defines the names and costs of the files in a folder.
type layout struct {
	groups []string                   // the folders right below, each with one folder per first hash byte
	path   func(digest.Digest) string // relative to the folder: group/xx/name
	// parse is the inverse of path; ok is false for a name that path never makes.
	parse func(path string) (k digest.Digest, ok bool)
	// whole reports whether a file of that many bytes can be the one of k.
	whole func(k digest.Digest, bytes int64) bool
	// right reports whether these are the bytes of k. Nil: readers check this themselves.
	right func(k digest.Digest, r io.Reader) bool
	cost  func(digest.Digest) int64
}

// files is a limited folder of immutable files, named by a key: the common part of Store and
// Actions. The folder is locked against other processes. Its ledger has the contents.
type files struct {
	*folder.Folder
	layout  layout
	log     *zap.Logger
	serial  atomic.Int64               // names temporary files; they are removed at the start
	scatter interface{ Next() string } // the folder of a new temporary file; nil: TempDir
	// setAside moves a damaged file away, and reports it unless found is empty. Nil: the file is
	// removed.
	setAside func(k digest.Digest, path, found string) error
	stuck    stuck

	ledger
}

// spread is Options.Spread. Files keep the place on the disk that they have as temporary ones.
func (f *files) spread(wanted bool) {
	if wanted {
		f.scatter = tempfolder.NewScatter(f.TempDir())
	}
}

// makeShards makes the folders of a group. Those that cannot be made are made with their first
// file, which reports why not. A disk that has no room for all of them keeps it for files.
func (f *files) makeShards(group string) {
	if err := os.MkdirAll(filepath.Join(f.Dir, group), 0o700); err != nil {
		return
	}
	for shard := range 256 {
		if diskFull(os.Mkdir(f.folderOf(group, shard), 0o700)) {
			for shard := range shard {
				_ = unix.Rmdir(f.folderOf(group, shard)) // unless it has files
			}
			return
		}
	}
}

// folderOf returns the folder of the files whose hashes begin with that byte.
func (f *files) folderOf(group string, first int) string {
	return filepath.Join(f.Dir, group, fmt.Sprintf("%02x", first))
}

func (f *files) path(k digest.Digest) string {
	return f.Dir + string(filepath.Separator) + f.layout.path(k) // filepath.Join takes ten times as long
}

// close lets another process have the folder.
func (f *files) close() error {
	if !f.end() {
		return nil
	}
	return f.Folder.Close()
}

// useChunk is how many keys are looked up in one hold of the lock.
const useChunk = 256

// use counts as a use of each of ks and returns the missing ones.
func (f *files) use(ks []digest.Digest) (missing []digest.Digest) {
	now := time.Now()
	for len(ks) > 0 {
		chunk := ks[:min(len(ks), useChunk)]
		ks = ks[len(chunk):]
		lost, stamps := f.touch(chunk, now.Unix())
		missing = append(missing, lost...)
		for _, k := range stamps {
			f.stamp(k, now)
		}
	}
	return missing
}

// stamp records the time of use in the file itself, for the next start. A file that was evicted in
// the meantime is missing; that, and any other failure, only costs order.
func (f *files) stamp(k digest.Digest, now time.Time) {
	still := tamper.Unwritten(f.path(k))
	before, _ := tamper.MarkOf(f.path(k))
	if err := os.Chtimes(f.path(k), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.log.Warn("cannot record the use of a file", zap.Error(err))
	}
	after, _ := tamper.MarkOf(f.path(k)) // no caller needs the mark of a missing file
	if !still() {
		after = 0 // the change may also be by others
	}
	f.restamped(k, before, after)
}

// open opens the file of k for reading, which counts as a use, and returns its generation. It drops
// a missing file or one with the wrong size, and returns ErrNotFound.
func (f *files) open(k digest.Digest) (file *os.File, generation uint64, err error) {
	f.use([]digest.Digest{k})
	generation, ok := f.pinFile(k)
	if !ok {
		return nil, 0, cas.ErrNotFound
	}
	defer f.unpin(k)
	file, wrong, err := f.openWhole(k)
	if wrong != "" {
		f.drop(k, generation, wrong)
		return nil, 0, cas.ErrNotFound
	}
	return file, generation, err
}

// peek opens the file of k for reading, which does not count as a use and does not prevent its
// eviction. It is never an unfinished file.
func (f *files) peek(k digest.Digest) (*os.File, error) {
	if !f.contains(k) {
		return nil, cas.ErrNotFound
	}
	file, wrong, err := f.openWhole(k)
	if wrong != "" {
		return nil, cas.ErrNotFound
	}
	return file, err
}

// openWhole opens the file of k for reading, or returns its damage.
func (f *files) openWhole(k digest.Digest) (file *os.File, wrong string, err error) {
	file, err = tamper.OpenToRead(func(flags int) (*os.File, error) { return os.OpenFile(f.path(k), flags, 0) })
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return nil, "is gone or replaced", nil
	}
	if err != nil && folder.IsOfProcess(err) {
		return nil, "", err
	}
	if err != nil {
		return nil, fmt.Sprintf("cannot be opened: %v", err), nil
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() && f.layout.whole(k, info.Size()) {
		return file, "", nil
	}
	_ = file.Close()
	if err != nil {
		return nil, fmt.Sprintf("has no attributes: %v", err), nil
	}
	return nil, "has the wrong size", nil
}

// read returns the contents of the file of k, or the beginning if the file is longer than size
// bytes, and the proof of the read. It combines open and a read, with fewer system calls; it is for
// small files, and the caller checks the bytes.
func (f *files) read(k digest.Digest, size int64) (b []byte, p proof, err error) {
	err = f.withFile(k, func(fd int, path string) error {
		r, err := beginReading(uintptr(fd))
		if err != nil {
			return &fs.PathError{Op: "stat", Path: path, Err: err}
		}
		if b, err = readAtMost(fd, path, size); err != nil {
			return err
		}
		p = r.proof()
		return nil
	})
	return b, p, err
}

// glance is read without the proof.
func (f *files) glance(k digest.Digest, size int64) (b []byte, err error) {
	err = f.withFile(k, func(fd int, path string) (err error) {
		b, err = readAtMost(fd, path, size)
		return err
	})
	return b, err
}

// withFile opens the file of k for use, and counts that as a use of k.
func (f *files) withFile(k digest.Digest, use func(fd int, path string) error) error {
	now := time.Now()
	pinned, stamp := f.touchAndPin(k, now.Unix())
	if !pinned {
		return cas.ErrNotFound
	}
	defer f.unpin(k)
	if stamp {
		f.stamp(k, now)
	}
	path := f.path(k)
	fd, err := openSmall(path)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	return use(fd, path)
}

// openSmall opens a file to read it, if possible without a change of its access time: that takes
// longer than to read a small file. The kernel permits it for files of this user.
func openSmall(path string) (int, error) {
	return tamper.OpenToRead(func(flags int) (int, error) {
		fd, err := eintr.Ignore(func() (int, error) { return unix.Open(path, flags|unix.O_NOATIME, 0) })
		if err == unix.EPERM {
			return eintr.Ignore(func() (int, error) { return unix.Open(path, flags, 0) })
		}
		return fd, err
	})
}

// readAtMost returns the first size bytes of the regular file at path, and one more if it is longer.
func readAtMost(fd int, path string, size int64) ([]byte, error) {
	b := make([]byte, size+1)
	n := 0
	for n < len(b) {
		m, err := eintr.Ignore(func() (int, error) { return unix.Read(fd, b[n:]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		n += m
		if m == 0 || int64(n) == size { // the read asked for one byte more
			break
		}
	}
	return b[:n:n], nil
}

// drop forgets k if its damaged file is still the one of that generation, and moves the file away
// or removes it. It reports whether it was.
func (f *files) drop(k digest.Digest, generation uint64, why string) bool {
	if !f.leave(k, generation) {
		return false
	}
	if f.setAside == nil {
		f.log.Warn("dropped a file that "+why, zap.String("path", f.path(k)))
		f.remove([]digest.Digest{k})
		return true
	}
	if err := f.setAside(k, f.path(k), why); err != nil {
		f.stays(k, err)
	}
	f.gone(k)
	return true
}

// remove removes the files of keys that are leaving.
func (f *files) remove(ks []digest.Digest) {
	for _, k := range ks {
		found, err := f.damageOf(k), error(nil)
		if found != "" {
			err = f.setAside(k, f.path(k), found)
			f.noteDamage([]digest.Digest{k})
		} else {
			err = os.Remove(f.path(k))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.stays(k, err)
		}
		f.gone(k)
	}
}

// damageOf returns the damage of the file of k, which is leaving: this is the last chance for its
// users. It reads the file only if it was changed after it was hashed.
func (f *files) damageOf(k digest.Digest) string {
	if f.setAside == nil {
		return ""
	}
	known, stamping := f.leaving(k)
	m, err := tamper.MarkOf(f.path(k))
	hashed := known.at != 0 || known.open
	if !hashed || err == nil && m == known.mark && !known.doubt {
		return ""
	}
	file, found, err := f.openWhole(k)
	if err != nil {
		f.noteDamage([]digest.Digest{k}) // as below
		return ""
	}
	if found != "" {
		return found
	}
	defer file.Close()
	if !f.layout.right(k, file) {
		return "has other bytes than when it was verified"
	}
	if !stamping {
		f.noteDamage([]digest.Digest{k}) // the bytes that its users have read are unknown
	}
	return ""
}
