package disk

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

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
// or writes it out of order may have left zeros in it.
func (f *files[K]) checkLatest(all []found[K]) ([]found[K], error) {
	if len(all) == 0 || f.layout.right == nil {
		return all, nil
	}
	began, last := time.Now(), all[len(all)-1].mtime
	first, _ := slices.BinarySearchFunc(all, last-unsyncedFor.Nanoseconds(),
		func(one found[K], mtime int64) int { return cmp.Compare(one.mtime, mtime) })
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
	f.log.Info("the machine was restarted; checked what was written last", zap.String("dir", f.dir),
		zap.Int("files", len(latest)), zap.Int("wrong", len(all)-len(kept)), zap.Duration("took", time.Since(began)))
	return kept, nil
}

// removeWrong removes the file of k unless its bytes are right.
func (f *files[K]) removeWrong(k K) (wrong bool, err error) {
	file, err := os.Open(f.path(k))
	if err != nil {
		return false, err
	}
	defer file.Close()
	if f.layout.right(k, file) {
		return false, nil
	}
	f.log.Warn("removed a damaged file from the store", zap.String("path", file.Name()))
	return true, os.Remove(file.Name())
}
