package image

import (
	"hash/maphash"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// closedRoot is the input of learning.
type closedRoot struct {
	digest digest.Digest
	source Source
}

// learn looks for subtrees of a closed root that were seen before at their path, the largest first,
// and makes images of those that are large enough.
func (c *Cache) learn(r closedRoot) {
	s := &survey{images: c, source: r.source, small: map[digest.Digest]int{}, left: maxVisits}
	if len(c.seen) > maxSeen {
		clear(c.seen)
	}
	if len(c.small) > maxSmall {
		clear(c.small)
	}
	s.visit("", r.digest)
	for _, want := range s.wanted {
		select {
		case <-c.stop:
			return
		default:
		}
		if err := c.make(want, r.source); err != nil {
			c.log.Warn("metadata image was not made; its subtree is served by this process",
				zap.String("path", want.path), zap.Stringer("digest", want.digest), zap.Error(err))
		}
	}
}

// site is a subtree at a path, or some of the subdirectories of a directory.
type site struct {
	path    string
	digest  digest.Digest
	members []tree.Entry // the subdirectories, in order of names; nil: the whole subtree
}

// survey reads the local part of one tree.
type survey struct {
	images *Cache
	source Source
	small  map[digest.Digest]int // as Cache.small, where some of it is not local
	left   int                   // directories that may still be read
	wanted []site
}

// visit decides about the subtree d at path.
func (s *survey) visit(path string, d digest.Digest) {
	if known, renew := s.images.known(path, d); known {
		if renew {
			s.wanted = append(s.wanted, site{path: path, digest: d})
		}
		return
	}
	if !s.large(d) {
		return
	}
	if s.images.seenBefore(path, d) && !s.images.unfit.Has(d) {
		s.wanted = append(s.wanted, site{path: path, digest: d})
		return
	}
	dir, ok := s.source.LocalDirectory(d)
	if !ok || s.left <= 0 {
		return
	}
	s.left--
	for i := range dir.Len() {
		if dir.Kind(i) != tree.Dir {
			continue
		}
		e := dir.At(i)
		s.visit(joined(path, e.Name), e.Digest)
	}
	s.gather(path, dir)
}

// large reports whether enough entries in and below d are local for an image to be worth its mount.
// It reads no more than necessary.
func (s *survey) large(d digest.Digest) bool {
	n, _ := s.count(d, MinEntries, 0)
	return n >= MinEntries
}

// count returns the number of local entries in and below d, with an addition for large files, or a
// number that is not below want. all: every directory there is local.
func (s *survey) count(d digest.Digest, want, depth int) (n int, all bool) {
	if n, ok := s.images.small[d]; ok {
		return n, true
	}
	if n, ok := s.small[d]; ok {
		return n, false
	}
	dir, ok := s.source.LocalDirectory(d)
	if !ok || s.left <= 0 || depth > maxImageDepth {
		return 0, false
	}
	s.left--
	n, all = dir.Len(), true
	for i := 0; i < dir.Len() && n < want; i++ {
		switch e := dir.At(i); {
		case e.Kind == tree.Dir:
			below, allBelow := s.count(e.Digest, want-n, depth+1)
			n, all = n+below, all && allBelow
		case e.Kind == tree.File && e.Digest.SizeBytes() >= largeFile:
			n += MinEntries
		}
	}
	switch {
	case n >= want:
	case all:
		s.images.small[d] = n
	default:
		s.small[d] = n
	}
	return n, all
}

// known reports whether there is an image, and whether it lacks so much that it should be replaced.
func (c *Cache) known(path string, d digest.Digest) (known, renew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	img := c.byPath[path][d]
	if img == nil {
		return false, false
	}
	return true, img.lacking >= RenewAfter
}

// seenBefore notes that the subtree was seen, and reports whether it was before.
func (c *Cache) seenBefore(path string, d digest.Digest) bool {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(path)
	maphash.WriteComparable(&h, d)
	key := h.Sum64()
	if _, ok := c.seen[key]; ok {
		return true
	}
	c.seen[key] = struct{}{}
	return false
}
