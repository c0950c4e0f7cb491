package disk

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

// A store that is opened leaves folders that its disk has lost to whoever looks at the disk: it moves them away, and makes
// new ones when blobs come.

// shardName is what folders of files are called.
var shardName = regexp.MustCompile(`^[0-9a-f]{2}$`)

// isOfDisk reports whether a folder cannot be read because the disk is damaged, or it is not a folder any more.
func isOfDisk(err error) bool {
	return isNoFolder(err) || slices.ContainsFunc([]error{unix.EUCLEAN, unix.EBADMSG, unix.EIO},
		func(e error) bool { return errors.Is(err, e) })
}

// isNoFolder reports whether something else is in a folder's place.
func isNoFolder(err error) bool { return errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) }

// noFolder is why there is no folder of that name, given that it cannot be found: nil if there is nothing at all, else it is a
// symlink that leads nowhere.
func (f *files[K]) noFolder(name string, notFound error) error {
	if _, err := os.Lstat(filepath.Join(f.dir, name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%w: %w", unix.ENOTDIR, notFound)
}

// list lists a folder of the store. One that cannot be listed is moved away, and is empty.
func (f *files[K]) list(name string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(filepath.Join(f.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		entries, err = nil, f.noFolder(name, err)
	}
	if err != nil && isOfDisk(err) {
		return nil, f.lose(name, err)
	}
	return entries, err
}

// lose moves what has that name in the store away, for the reason cause.
func (f *files[K]) lose(name string, cause error) error {
	to, err := f.damagedPlace(name)
	if err == nil {
		err = os.Rename(filepath.Join(f.dir, name), to)
	}
	if err != nil {
		return fmt.Errorf("%w; move it away: %w", cause, err)
	}
	f.log.Warn("a file or folder of the store could not be used and was replaced: check it, and the disk with fsck",
		zap.String("path", filepath.Join(f.dir, name)), zap.Error(cause), zap.String("kept_as", to))
	return nil
}

// clearNotes moves away what has the name of a file in which the store notes something and is none, so that to open it would wait
// for ever.
func (f *files[K]) clearNotes() error {
	for _, name := range []string{filepath.Base(lockPath(f.dir)), notesName, holdersName, scrubName} {
		info, err := os.Stat(filepath.Join(f.dir, name))
		if err != nil || info.Mode().IsRegular() {
			continue
		}
		if err := f.lose(name, fmt.Errorf("it is not a regular file (%s)", info.Mode())); err != nil {
			return err
		}
	}
	return nil
}

// What the files are called in which a Store notes something.
const (
	notesName   = "verified"
	holdersName = "holders"
	scrubName   = "scrub"
)

// freshGroup is where the folders of a group are moved to if one of them has to stay.
func freshGroup(group string) string { return group + ".new" }

// shardsOf lists the folders of a group, and ends first what a crash has left of leaveBehind.
func (f *files[K]) shardsOf(group string) ([]fs.DirEntry, error) {
	left, err := f.list(freshGroup(group))
	if err == nil && len(left) > 0 {
		err = f.moveBack(group, left)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Remove(filepath.Join(f.dir, freshGroup(group))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return f.list(group)
}

// moveBack moves what is left in freshGroup to its group.
func (f *files[K]) moveBack(group string, left []fs.DirEntry) error {
	_, err := f.list(group) // which may be a damaged one
	if err == nil {
		err = os.MkdirAll(filepath.Join(f.dir, group), 0o700)
	}
	for _, e := range left {
		if err == nil {
			err = os.Rename(filepath.Join(f.dir, freshGroup(group), e.Name()), filepath.Join(f.dir, group, e.Name()))
		}
	}
	return err
}

// giveUp moves folders of a group away that cannot be read, for the reason cause; those that cannot be moved either
// stay where they are, and the others move.
func (f *files[K]) giveUp(group string, shards []string, cause error) error {
	var stay []string
	for _, shard := range shards {
		to, err := f.damagedPlace(group + "-" + shard)
		if err == nil {
			err = os.Rename(filepath.Join(f.dir, group, shard), to)
		}
		if err != nil {
			stay = append(stay, shard)
			continue
		}
		f.log.Warn("the disk has lost a folder of the store; its blobs are missing: check the disk with fsck",
			zap.String("folder", filepath.Join(f.dir, group, shard)), zap.Error(cause), zap.String("kept_as", to))
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
func (f *files[K]) leaveBehind(group string, some []string) (to string, err error) {
	dir, fresh := filepath.Join(f.dir, group), filepath.Join(f.dir, freshGroup(group))
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
func (f *files[K]) damagedPlace(what string) (string, error) {
	for i := 1; ; i++ {
		path := filepath.Join(f.dir, fmt.Sprintf("damaged-%s-%d", what, i))
		switch _, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			return path, nil
		case err != nil:
			return "", err
		}
	}
}
