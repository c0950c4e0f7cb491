package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/disk/tamper"
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
	f := &files[K]{dir: dir, layout: l, log: log}
	if err := f.clearNotes(); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	f.lock = lock
	err = f.emptyTemp()
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

// emptyTemp makes the folder for temporary files anew. What cannot be removed of the one before is moved away.
func (f *files[K]) emptyTemp() error {
	if err := os.RemoveAll(f.tempDir()); err != nil && isOfProcess(err) {
		return err
	} else if err != nil {
		if moving := f.lose(filepath.Base(f.tempDir()), err); moving != nil {
			return moving
		}
	}
	return os.Mkdir(f.tempDir(), 0o700)
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
		// lost are the shards of each group that cannot be read, and cause is why the last one cannot. Guarded by mu.
		lost  = map[string][]string{}
		cause error
	)
	group.SetLimit(scanWidth)
	for _, g := range f.layout.groups {
		shards, err := f.shardsOf(g)
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		for _, shard := range shards {
			group.Go(func() error {
				some, err := f.scanShard(filepath.Join(g, shard.Name()))
				mu.Lock()
				defer mu.Unlock()
				if err != nil && isOfDisk(err) {
					lost[g] = append(lost[g], shard.Name())
					cause, err = err, nil
				}
				all = append(all, some...)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for g, shards := range lost {
		if err := f.giveUp(g, shards, cause); err != nil {
			return err
		}
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
	if errors.Is(err, fs.ErrNotExist) {
		if err = f.noFolder(shard, err); err == nil {
			return nil, nil
		}
	}
	if err != nil && isNoFolder(err) && !shardName.MatchString(filepath.Base(shard)) {
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
		err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody has removed it since it was listed
		}
		if err != nil { // its blob is missing, and the rest of the store is as good as before
			f.stays(k, fmt.Errorf("stat: %w", err))
			continue
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && f.layout.whole(k, st.Size) {
			some = append(some, found[K]{k, st.Mtim.Nano(), tamper.Mark(&st)})
			continue
		}
		f.log.Warn("removed a damaged file from the store",
			zap.String("path", filepath.Join(f.dir, path)), zap.Int64("bytes", st.Size))
		if err := os.RemoveAll(filepath.Join(f.dir, path)); err != nil {
			f.stays(k, err)
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

// unsyncedFor is how long before a loss of power a file may have been finished that
// is not all on the disk: Linux begins to write what is 30 s old
// (vm.dirty_expire_centisecs), the rest is for what is in line there.
const unsyncedFor = 5 * time.Minute

// bootID tells each start of the machine from all others; empty if nothing does.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// sameBoot reports whether the folder was opened before since the machine was started.
func (f *files[K]) sameBoot() bool {
	id := bootID()
	b, err := os.ReadFile(lockPath(f.dir))
	return err == nil && id != "" && string(b) == id
}

// noteBoot has sameBoot hold from now on. If it cannot, as on a full disk, all that
// comes of it is that files are checked once more.
func (f *files[K]) noteBoot() {
	_ = f.lock.Truncate(0)
	_, _ = f.lock.WriteAt([]byte(bootID()), 0)
}

// checkLatest removes those of all, which are in the order of their times, that are
// wrong and were finished so late before the machine went down that this may be why.
// Their sizes do not tell: who gives a file its size before its bytes, as linkers do,
// or writes it out of order may have left zeros in it. When those were finished that are ahead of the clock nobody knows: it was
// wrong for a while then, or is wrong now, for all of them.
func (f *files[K]) checkLatest(all []found[K]) ([]found[K], error) {
	if len(all) == 0 || f.layout.right == nil {
		return all, nil
	}
	began := time.Now()
	before := func(mtime int64) int {
		n, _ := slices.BinarySearchFunc(all, mtime, func(one found[K], mtime int64) int { return cmp.Compare(one.mtime, mtime) })
		return n
	}
	n := before(began.UnixNano() + 1)
	if n == 0 {
		n = len(all)
	}
	first := before(all[n-1].mtime - unsyncedFor.Nanoseconds())
	latest := all[first:]
	wrong := make([]bool, len(latest))
	var group errgroup.Group
	group.SetLimit(scanWidth)
	for i, one := range latest {
		group.Go(func() (err error) {
			wrong[i], err = f.removeWrong(one.key)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	kept := all[:first]
	for i, one := range latest {
		if !wrong[i] {
			kept = append(kept, one)
		}
	}
	f.log.Info("the machine was restarted; checked the latest files", zap.String("dir", f.dir),
		zap.Int("files", len(latest)), zap.Int("wrong", len(all)-len(kept)), zap.Duration("took", time.Since(began)))
	return kept, nil
}

// removeWrong removes the file of k unless its bytes are right.
func (f *files[K]) removeWrong(k K) (wrong bool, err error) {
	file, found, err := f.openWhole(k)
	if err != nil {
		return false, err
	}
	if found == "" {
		defer file.Close()
		if f.layout.right(k, file) {
			return false, nil
		}
	}
	f.log.Warn("removed a damaged file from the store", zap.String("path", f.path(k)))
	if err := os.Remove(f.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.stays(k, err)
	}
	return true, nil
}
