package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// scanWidth is how many folders are read at once when a store is opened.
const scanWidth = 8

// openFiles takes the folder for this process, removes what a crash left behind
// and finds what is there. The bound is set by the caller with limit.
func openFiles[K comparable](dir string, l layout[K], log *zap.Logger) (*files[K], error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	f := &files[K]{dir: dir, layout: l, log: log, lock: lock}
	err = emptyDir(f.tempDir())
	if err == nil {
		err = f.scan()
	}
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	f.noteBoot()
	return f, nil
}

// lockPath is the file that locks dir. It holds the bootID of when dir was opened last.
func lockPath(dir string) string { return filepath.Join(dir, "lock") }

// lockDir locks dir until the file is closed or the process ends.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(lockPath(dir), os.O_RDWR|os.O_CREATE, 0o600)
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

func emptyDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o700)
}

// limit sets the bound, and evicts what exceeds it.
func (f *files[K]) limit(maxCost int64) {
	f.remove(f.bound(maxCost))
}

// A found is a file seen by scan.
type found[K comparable] struct {
	key   K
	mtime int64 // in nanoseconds
	mark  uint64
}

// scan fills the index from the folder, the file modified last as the one used
// last. It needs one stat per file, in scanWidth folders at once, and after a start of
// the machine reads some.
func (f *files[K]) scan() error {
	var (
		group errgroup.Group
		mu    sync.Mutex
		all   []found[K] // guarded by mu
	)
	group.SetLimit(scanWidth)
	for _, g := range f.layout.groups {
		shards, err := os.ReadDir(filepath.Join(f.dir, g))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, group.Wait())
		}
		for _, shard := range shards {
			group.Go(func() error {
				some, err := f.scanShard(filepath.Join(g, shard.Name()))
				mu.Lock()
				defer mu.Unlock()
				all = append(all, some...)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b found[K]) int { return cmp.Compare(a.mtime, b.mtime) })
	if !f.sameBoot() {
		var err error
		if all, err = f.checkLatest(all); err != nil {
			return err
		}
	}
	f.index = newIndex[K](0, len(all))
	now := time.Now().Unix()
	for _, one := range all {
		f.index.load(one.key, f.layout.cost(one.key), min(one.mtime/int64(time.Second), now))
		f.index.entries[one.key].proof.mark = one.mark
	}
	return nil
}

// scanShard lists the whole files of one folder and removes the others. Files
// that this package did not name are left alone.
func (f *files[K]) scanShard(shard string) ([]found[K], error) {
	dir, err := os.OpenFile(filepath.Join(f.dir, shard), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) {
		f.log.Warn("unknown file in the store", zap.String("path", filepath.Join(f.dir, shard)))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	some := make([]found[K], 0, len(names))
	for _, name := range names {
		path := shard + "/" + name
		k, ok := f.layout.parse(path)
		if !ok {
			f.log.Warn("unknown file in the store", zap.String("path", filepath.Join(f.dir, path)))
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, fmt.Errorf("stat %s: %w", path, err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && f.layout.whole(k, st.Size) {
			some = append(some, found[K]{k, st.Mtim.Nano(), mark(&st)})
			continue
		}
		f.log.Warn("removed a damaged file from the store",
			zap.String("path", filepath.Join(f.dir, path)), zap.Int64("bytes", st.Size))
		if err := os.RemoveAll(filepath.Join(f.dir, path)); err != nil {
			return nil, err
		}
	}
	return some, nil
}

// freeBytes is how much an unprivileged process may still write to dir's disk.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}
