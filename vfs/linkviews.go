package vfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// linkedName is the folder of the links of each root that has an overlay, in that of all links.
const linkedName = "roots"

// The cost of showing inputs with their owner on the disk, and how to avoid it.
const (
	costOfForeignLinks = "inputs belong to nobody in a sandbox: a command that writes to one, or changes its mode, fails, " +
		"where with FUSE it changes its own copy"
	linkViewsAdvice = "use Linux 5.19 or later, and put the upper folder on ext4, xfs, btrfs or tmpfs (since Linux 6.3)"
)

// linkViews are mounts of the folder of all links, one for each owner that is root of a user
// namespace: in its mount, files of this process, such as the shared copies, belong to that owner.
// Overlays use them.
type linkViews struct {
	dir string // of all links
	at  map[Owner]string
}

// ownerOf is the owner of the folders of links of a root with this owner.
func (v linkViews) ownerOf(owner Owner) Owner {
	if _, ok := v.at[owner]; ok {
		return folder.ProcessOwner()
	}
	return owner
}

// seenBy returns the path of folders of links for an owner.
func (v linkViews) seenBy(owner Owner, folders []string) []string {
	at, ok := v.at[owner]
	if !ok {
		return folders
	}
	seen := make([]string, len(folders))
	for i, dir := range folders {
		seen[i] = at + strings.TrimPrefix(dir, v.dir)
	}
	return seen
}

// openLinkViews makes the views, tries one out, and warns where the machine cannot have them.
func (f *FS) openLinkViews() {
	if !f.means.overlay() || len(f.namespaces) == 0 {
		return
	}
	points := filepath.Join(f.points.dir, linksName)
	views := linkViews{dir: f.linkDir(), at: map[Owner]string{}}
	err := os.Mkdir(points, 0o700) // a view is useless without an overlay on it
	for owner, namespace := range f.namespaces {
		if err != nil {
			break
		}
		at := filepath.Join(points, fmt.Sprintf("%d-%d", owner.UID, owner.GID))
		if err = os.Mkdir(at, 0o700); err == nil {
			if err = mounts.As(views.dir, at, namespace); err == nil {
				views.at[owner] = at
			}
		}
	}
	f.linkViews = views
	for owner := range views.at {
		if err == nil {
			err = f.tryLinkView(owner)
		}
		break
	}
	if err == nil {
		return
	}
	f.linkViews = linkViews{}
	err = errors.Join(err, mounts.Detach(points))
	f.log.Warn("no ID-mapped mounts for input roots", missing(err),
		zap.String("costs", costOfForeignLinks), zap.String("remedy", linkViewsAdvice))
}

// tryLinkView makes a root of an owner, changes an input of it, and drops it.
func (f *FS) tryLinkView(owner Owner) error {
	src, err := newProbeSource(f.upperDir)
	if err != nil {
		return err
	}
	defer func() { _ = src.file.Close() }()
	r, err := f.newRoot(context.Background(), RootSpec{Name: probeName, Digest: src.root, Source: src, Owner: &owner})
	if err != nil {
		return err
	}
	input := filepath.Join(r.Path(), "file")
	err = errors.Join(r.readProbe(), os.Chmod(input, 0o600))
	if info, statErr := os.Stat(input); err == nil && statErr == nil {
		if st := info.Sys().(*syscall.Stat_t); (Owner{UID: st.Uid, GID: st.Gid}) != owner {
			err = fmt.Errorf("an input is user %d's and group %d's instead of %d's and %d's", st.Uid, st.Gid, owner.UID, owner.GID)
		}
	}
	return errors.Join(err, r.Close())
}
