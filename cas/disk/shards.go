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
	return slices.ContainsFunc([]error{unix.EUCLEAN, unix.EBADMSG, unix.EIO, unix.ENOTDIR},
		func(e error) bool { return errors.Is(err, e) })
}

// freshGroup is where the folders of a group are moved to if one of them has to stay.
func freshGroup(group string) string { return group + ".new" }

// shardsOf lists the folders of a group, and ends first what a crash has left of leaveBehind.
func (f *files[K]) shardsOf(group string) ([]fs.DirEntry, error) {
	dir, fresh := filepath.Join(f.dir, group), filepath.Join(f.dir, freshGroup(group))
	left, err := os.ReadDir(fresh)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	for _, e := range left {
		if err == nil {
			err = os.Rename(filepath.Join(fresh, e.Name()), filepath.Join(dir, e.Name()))
		}
	}
	if err == nil {
		err = os.Remove(fresh)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	shards, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return shards, err
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
		f.log.Warn("the disk has lost a folder of the store, whose blobs are missing: look at the disk with fsck",
			zap.String("folder", filepath.Join(f.dir, group, shard)), zap.Error(cause), zap.String("kept_as", to))
	}
	if len(stay) == 0 {
		return nil
	}
	to, err := f.leaveBehind(group, stay)
	if err != nil {
		return fmt.Errorf("%w; leave it behind: %w", cause, err)
	}
	f.log.Warn("the disk has lost a folder of the store, whose blobs are missing: look at the disk with fsck",
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
