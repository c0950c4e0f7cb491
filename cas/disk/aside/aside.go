package aside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/mountinfo"
	"github.com/forerunner-build/forerunner/paths"
)

// The limits of the folder.
const (
	MaxFiles = 64
	MaxBytes = 1 << 30
)

// A Folder keeps damaged files for the operator, and removes the oldest first. A file's name is the
// time in Unix nanoseconds and the blob. Its methods may be called concurrently.
type Folder struct {
	dir      string
	maxBytes int64
	log      *zap.Logger

	damaged atomic.Int64 // files since the start

	mu    sync.Mutex // held for moving and removing files: damage is rare
	kept  []file
	bytes int64 // of kept
	last  int64 // time in the name of the latest
}

type file struct {
	name  string
	bytes int64
}

// Open opens the folder, if it exists; otherwise the first damaged file creates it. It holds at
// most maxBytes, and never more than MaxBytes.
func Open(dir string, maxBytes int64, log *zap.Logger) *Folder {
	a := &Folder{dir: dir, maxBytes: min(maxBytes, MaxBytes), log: log}
	entries, err := os.ReadDir(dir) // in the order of their names
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot list the damaged files that were set aside", zap.Error(err))
	}
	for _, e := range entries {
		at, _, _ := strings.Cut(e.Name(), "-")
		info, err := e.Info()
		if n, parseErr := strconv.ParseInt(at, 10, 64); err != nil || parseErr != nil || n <= 0 {
			continue // a foreign file
		}
		a.kept = append(a.kept, file{e.Name(), info.Size()})
		a.bytes += info.Size()
	}
	a.trim()
	return a
}

// Take moves the damaged file of d to the folder, and logs found unless that is empty. After an
// error the file is still where it was.
func (a *Folder) Take(d digest.Digest, path, found string) error {
	kept, notKept, err := a.move(d, path)
	if found != "" {
		a.count(1, path).Warn("a blob in the store is damaged", zap.Stringer("digest", d), zap.String("file", path),
			zap.String("it", found), zap.String("kept_as", kept), zap.NamedError("not_kept", notKept))
	}
	return err
}

// count counts n damaged files, and returns the log for them: it has the device of path.
func (a *Folder) count(n int, path string) *zap.Logger {
	a.damaged.Add(int64(n))
	return a.log.With(zap.String("device", deviceOf(path)))
}

// move moves the file of d to the folder, or removes it if it cannot be kept.
func (a *Folder) move(d digest.Digest, path string) (kept string, notKept, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = max(a.last+1, time.Now().UnixNano())
	f := file{name: fmt.Sprintf("%d-%s-%s-%d", a.last, d.Function(), d.Hash(), d.SizeBytes())}
	kept = filepath.Join(a.dir, f.name)
	var st unix.Stat_t
	notKept = unix.Lstat(path, &st)
	if f.bytes = st.Size; notKept == nil && f.bytes <= a.maxBytes {
		notKept = os.MkdirAll(a.dir, 0o700)
		if notKept == nil {
			notKept = os.Rename(path, kept)
		}
	} else if notKept == nil {
		notKept = errors.New("it is larger than the limit of the folder")
	}
	if notKept != nil {
		return "", notKept, os.RemoveAll(path)
	}
	a.kept = append(a.kept, f)
	a.bytes += f.bytes
	if len(a.kept) > MaxFiles || a.bytes > a.maxBytes {
		a.forgetGone()
	}
	a.trim()
	return kept, nil, nil
}

// Miss logs blobs whose files others have removed from a folder. They count as damaged.
func (a *Folder) Miss(ds []digest.Digest, folder string) {
	if len(ds) == 0 {
		return
	}
	const most = 5 // named in the log
	var names []string
	for _, d := range ds[:min(len(ds), most)] {
		names = append(names, d.String())
	}
	a.count(len(ds), folder).Warn("files of blobs are gone from the store; the blobs are missing",
		zap.Int("blobs", len(ds)), zap.Strings("digests", names), zap.String("folder", folder))
}

// CopyDamaged records that another program's copy of d on this machine, the file at path, is
// damaged. It counts like a blob of the store, because the operator of the disk must know of both.
func (a *Folder) CopyDamaged(d digest.Digest, path string) {
	a.count(1, path).Warn("a copy of a blob is damaged; it is dropped", zap.Stringer("digest", d), zap.String("file", path))
}

// forgetGone forgets files that others have removed.
func (a *Folder) forgetGone() {
	a.kept = slices.DeleteFunc(a.kept, func(f file) bool {
		_, err := os.Lstat(filepath.Join(a.dir, f.name))
		gone := errors.Is(err, fs.ErrNotExist)
		if gone {
			a.bytes -= f.bytes
		}
		return gone
	})
}

// trim removes the oldest files until the rest is within the limits.
func (a *Folder) trim() {
	for len(a.kept) > MaxFiles || a.bytes > a.maxBytes {
		oldest := a.kept[0]
		if err := os.RemoveAll(filepath.Join(a.dir, oldest.name)); err != nil {
			a.log.Error("cannot remove a damaged file from the store", zap.Error(err))
		}
		a.kept = a.kept[1:]
		a.bytes -= oldest.bytes
	}
}

// Stats returns how many files were damaged since the start, and the contents of the folder.
func (a *Folder) Stats() (damaged, files, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgetGone()
	return a.damaged.Load(), int64(len(a.kept)), a.bytes
}

// deviceOf names the mount of path: the source, type and number of the mount with the longest path
// that the kernel lists.
func deviceOf(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Dir(path), &st); err != nil {
		return "unknown"
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	mounts, _ := mountinfo.Read()
	device, longest := number, -1
	for _, m := range mounts {
		if m.Device == number && paths.Below(path, m.Point) && len(m.Point) > longest {
			device, longest = fmt.Sprintf("%s (%s, %s)", m.Source, m.Type, number), len(m.Point)
		}
	}
	return device
}
