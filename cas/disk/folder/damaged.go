package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// When a store opens, it keeps folders that its disk has lost for the operator: it moves them away,
// and makes new ones when blobs arrive.

// shardName matches the names of the folders of a group.
var shardName = regexp.MustCompile(`^[0-9a-f]{2}$`)

// IsOfDisk reports whether a folder is unreadable because the disk is damaged, or because it is no
// folder any more.
func IsOfDisk(err error) bool {
	return isNoFolder(err) || slices.ContainsFunc([]error{unix.EUCLEAN, unix.EBADMSG, unix.EIO},
		func(e error) bool { return errors.Is(err, e) })
}

// isNoFolder reports whether something else is in a folder's place.
func isNoFolder(err error) bool { return errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) }

// OpenShard opens a folder that Shards has listed. The result is nil if the folder no longer
// exists, or if the entry is not a folder.
func (f *Folder) OpenShard(name string) (*os.File, error) {
	dir, err := os.OpenFile(filepath.Join(f.Dir, name), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err = f.noFolder(name, err); err == nil {
			return nil, nil
		}
	}
	if err != nil && isNoFolder(err) && !shardName.MatchString(filepath.Base(name)) {
		f.log.Warn("unknown file in the store", zap.String("path", filepath.Join(f.Dir, name)))
		return nil, nil
	}
	return dir, err
}

// noFolder is why there is no folder of that name, given that it cannot be found: nil if there is
// nothing at all, else it is a symlink that leads nowhere.
func (f *Folder) noFolder(name string, notFound error) error {
	if _, err := os.Lstat(filepath.Join(f.Dir, name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%w: %w", unix.ENOTDIR, notFound)
}

// list lists a folder of the store. It moves an unreadable one away and returns nothing.
func (f *Folder) list(name string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(filepath.Join(f.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		entries, err = nil, f.noFolder(name, err)
	}
	if err != nil && IsOfDisk(err) {
		return nil, f.lose(name, err)
	}
	return entries, err
}

// lose moves the entry with that name in the store away, for the reason cause.
func (f *Folder) lose(name string, cause error) error {
	to, err := f.damagedPlace(name)
	if err == nil {
		err = os.Rename(filepath.Join(f.Dir, name), to)
	}
	if err != nil {
		return fmt.Errorf("%w; move it away: %w", cause, err)
	}
	f.log.Warn("a file or folder of the store could not be used and was replaced: check it, and the disk with fsck",
		zap.String("path", filepath.Join(f.Dir, name)), zap.Error(cause), zap.String("kept_as", to))
	return nil
}

// clear moves entries with one of these names away unless they are files.
func (f *Folder) clear(files []string) error {
	for _, name := range files {
		info, err := os.Stat(filepath.Join(f.Dir, name))
		if err != nil || info.Mode().IsRegular() {
			continue
		}
		if err := f.lose(name, fmt.Errorf("it is not a regular file (%s)", info.Mode())); err != nil {
			return err
		}
	}
	return nil
}

// FreshGroup is where the folders of a group are moved if one of them must stay. The next start
// moves them back.
func FreshGroup(group string) string { return group + ".new" }

// Shards lists the folders of a group. Each has the files whose hashes begin with the same digits.
// It first completes a leaveBehind that a crash interrupted.
func (f *Folder) Shards(group string) ([]fs.DirEntry, error) {
	left, err := f.list(FreshGroup(group))
	if err == nil && len(left) > 0 {
		err = f.moveBack(group, left)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Remove(filepath.Join(f.Dir, FreshGroup(group))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return f.list(group)
}

// moveBack moves everything in FreshGroup to its group.
func (f *Folder) moveBack(group string, left []fs.DirEntry) error {
	_, err := f.list(group) // which may be a damaged one
	if err == nil {
		err = os.MkdirAll(filepath.Join(f.Dir, group), 0o700)
	}
	for _, e := range left {
		if err == nil {
			err = os.Rename(filepath.Join(f.Dir, FreshGroup(group), e.Name()), filepath.Join(f.Dir, group, e.Name()))
		}
	}
	return err
}

// GiveUp moves unreadable folders of a group away, because of cause. If one cannot be moved, it
// stays and the readable ones move instead.
func (f *Folder) GiveUp(group string, shards []string, cause error) error {
	var stay []string
	for _, shard := range shards {
		to, err := f.damagedPlace(group + "-" + shard)
		if err == nil {
			err = os.Rename(filepath.Join(f.Dir, group, shard), to)
		}
		if err != nil {
			stay = append(stay, shard)
			continue
		}
		f.log.Warn("the disk has lost a folder of the store; its blobs are missing: check the disk with fsck",
			zap.String("folder", filepath.Join(f.Dir, group, shard)), zap.Error(cause), zap.String("kept_as", to))
	}
	if len(stay) == 0 {
		return nil
	}
	to, err := f.leaveBehind(group, stay)
	if err != nil {
		return fmt.Errorf("%w; leave it behind: %w", cause, err)
	}
	f.log.Warn("the disk has lost a folder of the store; its blobs are missing: check the disk with fsck",
		zap.Strings("folders", stay), zap.Error(cause), zap.String("kept_in", to))
	return nil
}

// leaveBehind moves all folders of a group but some to a new one, which takes its place.
func (f *Folder) leaveBehind(group string, some []string) (to string, err error) {
	dir, fresh := filepath.Join(f.Dir, group), filepath.Join(f.Dir, FreshGroup(group))
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return "", err
	}
	shards, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range shards {
		if slices.Contains(some, e.Name()) {
			continue
		}
		if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(fresh, e.Name())); err != nil {
			return "", err
		}
	}
	if to, err = f.damagedPlace(group); err != nil {
		return "", err
	}
	if err := os.Rename(dir, to); err != nil {
		return "", err
	}
	return to, os.Rename(fresh, dir)
}

// damagedPlace returns a name in the store that nothing has.
func (f *Folder) damagedPlace(what string) (string, error) {
	for i := 1; ; i++ {
		path := filepath.Join(f.Dir, fmt.Sprintf("damaged-%s-%d", what, i))
		switch _, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			return path, nil
		case err != nil:
			return "", err
		}
	}
}
