package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// growFor returns an image of the whole tree d that grows, if that is worth its mount.
func (c *Cache) growFor(d digest.Digest, source Source, waiter Waiter) []*graft {
	if c.files == nil || c.cannotGrow.Load() || c.unfit.Has(d) || !c.worthGrowing(d, source) {
		return nil
	}
	img, err := c.grow(d, source, waiter)
	if err != nil {
		if refused := (*mounts.Error)(nil); errors.As(err, &refused) {
			c.cannotGrow.Store(true)
		}
		c.log.Debug("trees get metadata images when they are seen again", zap.Error(err))
		return nil
	}
	return []*graft{{image: img, seen: map[uint64]struct{}{}}}
}

// worthGrowing reports whether the tree is large and its beginning is local, with files. For files
// that are not local, FUSE reports earlier that they are needed.
func (c *Cache) worthGrowing(d digest.Digest, source Source) bool {
	entries := 0
	todo := []digest.Digest{d}
	var samples []digest.Digest // a file of each directory
	for len(todo) > 0 && entries < MinEntries {
		dir, ok := source.LocalDirectory(todo[len(todo)-1])
		if !ok {
			return false
		}
		todo = todo[:len(todo)-1]
		entries += dir.Len()
		sampled := false
		for i := range min(dir.Len(), MinEntries) {
			switch e := dir.At(i); {
			case e.Kind == tree.Dir:
				todo = append(todo, e.Digest)
			case e.Kind == tree.File && !sampled && !e.Digest.IsEmptyBlob():
				sampled = true
				samples = append(samples, e.Digest)
			}
		}
	}
	return entries >= MinEntries && !slices.ContainsFunc(samples, func(d digest.Digest) bool {
		_, err := os.Lstat(filepath.Join(c.blobs.Dir, c.blobs.Path(d)))
		return errors.Is(err, os.ErrNotExist)
	})
}
