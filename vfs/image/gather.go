package image

import (
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/paths"
)

// Bounds of gathered images.
const (
	// maxGathered limits those of one directory, which differ in their members.
	maxGathered = 4
	// maxNeed limits how many roots must have lacked a gathered image of a directory before the next
	// one is made. That doubles with each, and is halved again when so many roots have used one.
	maxNeed = 1 << 10
	// maxGathers bounds the directories for which this is remembered.
	maxGathers = 1 << 10
)

// A gather has what was learned about gathered images of the directories at one path.
type gather struct {
	need         int // roots that must lack one before another is made
	missed, used int // roots since then
}

// gather finds the small subdirectories of dir, which is at path, that were seen before. If they
// have enough entries together, and no image has most of them, they get one.
func (s *survey) gather(path string, dir *tree.Directory) {
	c := s.images
	if c.noGathers {
		return
	}
	var members []tree.Entry
	entries := 0
	for i := range dir.Len() {
		if dir.Kind(i) != tree.Dir {
			continue
		}
		e := dir.At(i)
		n, _ := s.count(e.Digest, MinEntries, 0)
		if n == 0 || n >= MinEntries || !c.seenBefore(joined(path, e.Name), e.Digest) {
			continue
		}
		members = append(members, e)
		entries += n
	}
	if entries < MinEntries {
		return
	}
	if len(c.gathers) > maxGathers {
		clear(c.gathers)
	}
	g := c.gathers[path]
	if g == nil {
		g = &gather{need: 1}
		c.gathers[path] = g
	}
	if has := c.gatheredOf(path, dir); 2*has >= len(members) {
		g.missed = 0
		if g.used++; g.used >= 2*g.need {
			g.need, g.used = max(g.need/2, 1), 0
		}
		return
	}
	if g.missed++; g.missed < g.need {
		return
	}
	g.need, g.missed, g.used = min(2*g.need, maxNeed), 0, 0
	for i := range members {
		members[i] = cloneEntry(members[i])
	}
	s.wanted = append(s.wanted, site{path, keyOf(members), members})
}

// joined is the path of a name in a directory.
func joined(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// keyOf is the digest by which an image of these members is known. It is no message's, least of all
// a Directory's: such a text cannot be decoded.
func keyOf(members []tree.Entry) digest.Digest {
	var text strings.Builder
	text.WriteString("\xff\xff")
	for _, e := range members {
		text.WriteString(e.Name + "/" + e.Digest.String() + "\n")
	}
	return digest.Of(members[0].Digest.Function(), []byte(text.String()))
}

// isIn reports whether a directory has all members of a gathered image.
func (img *image) isIn(dir *tree.Directory) bool {
	return !slices.ContainsFunc(img.members, func(m tree.Entry) bool {
		e, ok := dir.Find(m.Name)
		return !ok || !same(e, m)
	})
}

// same reports whether an image shows both entries alike.
func same(a, b tree.Entry) bool {
	return a.Kind == b.Kind && a.Digest == b.Digest && a.Perm == b.Perm && a.MTime.Equal(b.MTime)
}

// gathered returns the gathered images at path that the directory there can show, the largest
// first.
func (c *Cache) gathered(path string, dir *tree.Directory) []*image {
	c.mu.Lock()
	var all []*image
	for _, img := range c.byPath[path] {
		if img.members != nil {
			all = append(all, img)
		}
	}
	c.mu.Unlock()
	all = slices.DeleteFunc(all, func(img *image) bool { return !img.isIn(dir) })
	slices.SortFunc(all, func(a, b *image) int { return len(b.members) - len(a.members) })
	return all
}

// gatheredOf returns how many members the largest of them has.
func (c *Cache) gatheredOf(path string, dir *tree.Directory) int {
	if all := c.gathered(path, dir); len(all) > 0 {
		return len(all[0].members)
	}
	return 0
}

// useGathered counts a user of the largest gathered image that the directory at can show at path;
// nil: there is none.
func (c *Cache) useGathered(path string, at digest.Digest, source Source) *image {
	c.mu.Lock()
	some := c.gatherings[path] > 0
	c.mu.Unlock()
	if !some {
		return nil
	}
	dir, ok := source.LocalDirectory(at)
	if !ok {
		return nil
	}
	fit := c.gathered(path, dir)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, img := range fit {
		if !img.retired { // meanwhile
			c.countUserLocked(img)
			return img
		}
	}
	return nil
}

// shows reports whether the image shows the directory at a path, or a part of it does.
func (img *image) shows(path string) bool {
	if !paths.Below(path, img.path) {
		return false
	}
	if img.members == nil {
		return true
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(path, img.path), "/")
	name, _, _ := strings.Cut(rest, "/")
	_, ok := slices.BinarySearchFunc(img.members, name, func(e tree.Entry, name string) int {
		return strings.Compare(e.Name, name)
	})
	return ok
}

// crowdedLocked returns the least recently used gathered image at a path that has too many of them.
func (c *Cache) crowdedLocked(path string) *image {
	if c.gatherings[path] <= maxGathered {
		return nil
	}
	return c.oldestLocked(func(i *image) bool { return i.path == path && i.members != nil })
}
