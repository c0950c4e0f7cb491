package link

import (
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// maxSizeDepth bounds how deep the size of a subtree is looked into.
const maxSizeDepth = 256

// listing has the directories of a tree.
type listing struct {
	dirs  map[digest.Digest]*tree.Directory
	sizes map[digest.Digest]int
}

// size is the number of entries in and below a directory, as far as minKeptEntries.
func (l *listing) size(d digest.Digest, depth int) int {
	if n, ok := l.sizes[d]; ok {
		return n
	}
	list := l.dirs[d]
	n := list.Len()
	for i := 0; i < list.Len() && n < minKeptEntries && depth < maxSizeDepth; i++ {
		if list.Kind(i) == tree.Dir {
			n += l.size(list.At(i).Digest, depth+1)
		}
	}
	l.sizes[d] = min(n, minKeptEntries)
	return l.sizes[d]
}

// A plan is the list of entries to make in a folder.
type plan struct {
	dirs  []dirAt            // parents before children
	files map[fileKey]string // a path of each copy that files lead to
}

// dirAt is one directory of the tree, at one of its paths.
type dirAt struct {
	path   string // relative; "" for the root
	digest digest.Digest
	list   *tree.Directory
	// which has the copy of each entry that is a file; nil: the first for all.
	which []int
}

// key returns the key of the copy of entry i, which is e.
func (d *dirAt) key(i int, e *tree.Entry) fileKey {
	k := keyOf(e)
	if d.which != nil {
		k.nth = d.which[i]
	}
	return k
}

// spread adds top and everything below, except the directories that share removes with everything
// below.
func (p *plan) spread(top dirAt, lists *listing, share func(dirAt) bool) {
	if share(top) {
		return
	}
	p.dirs = append(p.dirs, top)
	for i := 0; i < len(p.dirs); i++ {
		d := p.dirs[i]
		for j := range d.list.Len() {
			if d.list.Kind(j) != tree.Dir {
				continue
			}
			e := d.list.At(j)
			child := dirAt{path: joinName(d.path, e.Name), digest: e.Digest, list: lists.dirs[e.Digest]}
			if !share(child) {
				p.dirs = append(p.dirs, child)
			}
		}
	}
}

// number chooses the copy that each file of dirs leads to, a different one for each: to a
// program that keeps links, two names of one copy are one file. Copies that are taken are left out.
func (p *plan) number(taken func(fileKey) bool) {
	p.files = map[fileKey]string{}
	next := map[fileKey]int{} // by the key of the first copy
	for i := range p.dirs {
		d := &p.dirs[i]
		for j := range d.list.Len() {
			if d.list.Kind(j) != tree.File {
				continue
			}
			e := d.list.At(j)
			first := keyOf(&e)
			k := first
			for k.nth = next[first]; taken(k); {
				k.nth++
			}
			next[first] = k.nth + 1
			p.files[k] = joinName(d.path, e.Name)
			if k.nth > 0 {
				if d.which == nil {
					d.which = make([]int, d.list.Len())
				}
				d.which[j] = k.nth
			}
		}
	}
}
