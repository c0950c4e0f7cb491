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

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/folder"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// scanWidth is how many folders are read at once when a store is opened.
const scanWidth = 8

// openFiles takes the folder for this process, removes the leftovers of a crash and reads its
// contents. The caller sets the maximum with limit.
func openFiles(dir string, l layout, log *zap.Logger) (*files, error) {
	own, err := folder.Open(dir, log, notesName, holdersName, scrubName)
	if err != nil {
		return nil, err
	}
	f := &files{Folder: own, layout: l, log: log}
	if err := f.scan(); err != nil {
		_ = own.Close()
		return nil, err
	}
	own.NoteBoot()
	return f, nil
}

// The names of the files with a Store's own data.
const (
	notesName   = "verified"
	holdersName = "holders"
	scrubName   = "scrub"
)

// limit sets the maximum, and evicts the excess.
func (f *files) limit(maxCost int64) {
	f.remove(f.bound(maxCost))
}

// A found is a file seen by scan.
type found struct {
	key   digest.Digest
	mtime int64 // in nanoseconds
	mark  uint64
}

// scan fills the index from the folder, the file modified last as the one used
// last. It needs one stat per file, in scanWidth folders at once, and after a start of
// the machine reads some.
func (f *files) scan() error {
	var (
		group errgroup.Group
		mu    sync.Mutex
		all   []found // guarded by mu
		// lost are the shards of each group that cannot be read, and cause is why the last one
		// cannot. Guarded by mu.
		lost  = map[string][]string{}
		cause error
	)
	group.SetLimit(scanWidth)
	for _, g := range f.layout.groups {
		shards, err := f.Shards(g)
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		for _, shard := range shards {
			group.Go(func() error {
				some, err := f.scanShard(filepath.Join(g, shard.Name()))
				mu.Lock()
				defer mu.Unlock()
				if err != nil && folder.IsOfDisk(err) {
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
		if err := f.GiveUp(g, shards, cause); err != nil {
			return err
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(a.mtime, b.mtime) })
	if !f.SameBoot() {
		var err error
		if all, err = f.checkLatest(all); err != nil {
			return err
		}
	}
	f.index = newIndex(0, len(all))
	now := time.Now().Unix()
	for _, one := range all {
		f.index.load(one.key, f.layout.cost(one.key), min(one.mtime/int64(time.Second), now))
		f.index.entries[one.key].proof.mark = one.mark
	}
	return nil
}

// scanShard lists the complete files of one folder and removes the others. It leaves files that
// this package did not name.
func (f *files) scanShard(shard string) ([]found, error) {
	dir, err := f.OpenShard(shard)
	if dir == nil || err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	some := make([]found, 0, len(names))
	for _, name := range names {
		path := shard + "/" + name
		k, ok := f.layout.parse(path)
		if !ok {
			f.log.Warn("unknown file in the store", zap.String("path", filepath.Join(f.Dir, path)))
			continue
		}
		var st unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has removed it since the listing
		}
		if err != nil { // its blob is missing, and the rest of the store is as good as before
			f.stays(k, fmt.Errorf("stat: %w", err))
			continue
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && f.layout.whole(k, st.Size) {
			some = append(some, found{k, st.Mtim.Nano(), tamper.Mark(&st)})
			continue
		}
		f.log.Warn("removed a damaged file from the store",
			zap.String("path", filepath.Join(f.Dir, path)), zap.Int64("bytes", st.Size))
		if err := os.RemoveAll(filepath.Join(f.Dir, path)); err != nil {
			f.stays(k, err)
		}
	}
	return some, nil
}

// unsyncedFor is how long before a power failure a file may have been finished without being
// completely on the disk: Linux begins to write data that is 30 s old (vm.dirty_expire_centisecs);
// the rest is for the queue there.
const unsyncedFor = 5 * time.Minute

// checkLatest removes wrong files among all, which are in the order of their times, that were
// finished so shortly before the machine stopped that this may be the cause. Their sizes do not
// show it: a program that sets the size of a file before it writes the bytes, like a linker, or
// that writes out of order, may have left zeros in it. If files are ahead of the clock, their times
// are unknown: the clock was wrong for a while then, or is wrong now, for all of them.
func (f *files) checkLatest(all []found) ([]found, error) {
	if len(all) == 0 || f.layout.right == nil {
		return all, nil
	}
	began := time.Now()
	before := func(mtime int64) int {
		n, _ := slices.BinarySearchFunc(all, mtime, func(one found, mtime int64) int { return cmp.Compare(one.mtime, mtime) })
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
	f.log.Info("the machine was restarted; checked the latest files", zap.String("dir", f.Dir),
		zap.Int("files", len(latest)), zap.Int("wrong", len(all)-len(kept)), zap.Duration("took", time.Since(began)))
	return kept, nil
}

// removeWrong removes the file of k unless its bytes are right.
func (f *files) removeWrong(k digest.Digest) (wrong bool, err error) {
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
