package prefetch

import (
	"strings"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/prefetch/follow"
)

// The bounds of reading ahead by nearness.
const (
	// nearFileBytes is the size above which a file is not read ahead.
	nearFileBytes = 512 << 10
	// nearFree is how many bytes of unread neighbours may be there, or on their way, in addition to
	// the bytes that the action has read.
	nearFree = 4 << 20
	// Of one directory these many files and bytes, beside two for each that was read.
	nearFiles = 32
	nearBytes = 1 << 20
	// All files of a directory with so many entries, and bytes of files.
	nearWhole      = 48
	nearWholeBytes = 256 << 10
	// nearSure limits the additions to nearFiles while most neighbours are read.
	nearSure = 480
	// nearHits is how many subdirectories must be read from before others are tried, nearTries how
	// many of those are tried for each that was read from.
	nearHits  = 2
	nearTries = 4
	// maxNear limits the directories that are read.
	maxNear = 1 << 14
	// It is given up when of nearPeriod files, asked for at least a period ago, less
	// than nearTooLittle percent were read.
	nearPeriod    = 512
	nearTooLittle = 10
)

// A reach has the neighbours of opened files to prefetch, and which of them proved right. It
// belongs to one goroutine.
type reach struct {
	source      follow.Directories
	root        digest.Digest
	off         bool // it was given up
	top         *directory
	directories int                // directories below top
	known       map[PathHash]guess // files that were read or asked for
	read        int64              // bytes of the files that were read
	unread      int64              // bytes of requested and unread ones
	right       int                // files that were asked for and read
	wrong       int                // files that were asked for and not read, so far
	past        []period           // the last one is in progress
	found       []neighbour        // to be asked for
}

// A neighbour is a file near one that was opened.
type neighbour struct {
	digest digest.Digest
	hash   PathHash
}

// A guess is a file that was asked for and not read. Without a directory it was read.
type guess struct {
	in     *directory
	bytes  int64
	period int // index into past
}

// A period is some files that were asked for one after another.
type period struct{ asked, right int }

// A directory is one below which a file was opened, or that is next to such a one.
type directory struct {
	up    *directory // nil for the root
	below map[string]*directory
	at    PathHash
	tree  *tree.Directory
	// Entries of tree that were considered, as neighbours: of read files, beginning with entry
	// first, and of subdirectories.
	first, files, directories int

	read, waiting           int   // files: that were read; that were asked for and not read
	readBytes, waitingBytes int64 // theirs
	hit                     bool  // a file at any depth was read
	tried                   bool  // it was read ahead in because of its neighbours
	hits, tries             int   // subdirectories: hit; tried and not hit
}

func newReach(s follow.Directories, root digest.Digest) *reach {
	return &reach{source: s, root: root, known: map[PathHash]guess{}, past: make([]period, 1)}
}

// enter returns the directory of that digest, which is called name in up; nil if it is not local.
func (r *reach) enter(up *directory, name string, d digest.Digest) *directory {
	if found := up.below[name]; found != nil {
		return found
	}
	dir, ok := r.source.LocalDirectory(d)
	if !ok || r.directories >= maxNear {
		return nil
	}
	r.directories++
	entered := &directory{up: up, at: up.at.Child(name), tree: dir, below: map[string]*directory{}}
	up.below[name] = entered
	return entered
}

// opened records that the file at path is being read, and adds its neighbours if a profile has not
// predicted it.
func (r *reach) opened(path string, foreseen bool) {
	if r.off || foreseen && len(r.known) == 0 {
		return
	}
	if r.top == nil {
		dir, ok := r.source.LocalDirectory(r.root)
		if !ok {
			return
		}
		r.top = &directory{at: RootHash, tree: dir, below: map[string]*directory{}}
	}
	d := r.top
	name, rest, deeper := strings.Cut(path, "/")
	for ; deeper; name, rest, deeper = strings.Cut(rest, "/") {
		e, ok := d.tree.Find(name)
		if !ok || e.Kind != tree.Dir {
			return
		}
		if d = r.enter(d, name, e.Digest); d == nil {
			return
		}
	}
	i, ok := d.tree.Search(name)
	if !ok {
		return
	}
	r.note(d, i)
	if foreseen {
		return
	}
	r.widen(d)
	r.tryNamesake(d, name)
	for ; d != nil; d = d.up {
		r.reached(d)
	}
}

// note notes that entry i of d was read.
func (r *reach) note(d *directory, i int) {
	h := d.at.Child(d.tree.Name(i))
	size := d.tree.At(i).Digest.SizeBytes()
	g, known := r.known[h]
	if known && g.in == nil {
		return
	}
	if known {
		r.drop(g)
		r.past[g.period].right++
		r.right++
	}
	r.known[h] = guess{}
	if d.read == 0 && d.files == 0 {
		d.first = i
	}
	d.read++
	d.readBytes += size
	r.read += size
}

// drop removes a file from the requested and unread ones.
func (r *reach) drop(g guess) {
	g.in.waiting--
	g.in.waitingBytes -= g.bytes
	r.unread -= g.bytes
	r.wrong--
}

// widen finds files in d, once half of those found there before were read.
func (r *reach) widen(d *directory) {
	if d.files == d.tree.Len() {
		return
	}
	most := nearFiles + min(max(r.right-r.wrong, 0)/4, nearSure) + 2*d.read
	if d.isSmall() {
		most = max(most, nearWhole)
	}
	if 2*d.waiting > most {
		return
	}
	for ; d.files < d.tree.Len() && d.waiting < most; d.files++ {
		i := (d.first + d.files) % d.tree.Len()
		if d.tree.Kind(i) != tree.File {
			continue
		}
		f := neighbour{d.tree.At(i).Digest, d.at.Child(d.tree.Name(i))}
		size := f.digest.SizeBytes()
		if _, known := r.known[f.hash]; known || size > nearFileBytes {
			continue
		}
		if d.waitingBytes+size > nearBytes+2*d.readBytes || r.unread+size > nearFree+r.read {
			return
		}
		r.ask(d, f)
	}
}

// isSmall reports whether d is worth fetching as a whole.
func (d *directory) isSmall() bool {
	if d.tree.Len() > nearWhole {
		return false
	}
	var bytes int64
	for i := range d.tree.Len() {
		if d.tree.Kind(i) == tree.File {
			bytes += d.tree.At(i).Digest.SizeBytes()
		}
	}
	return bytes <= nearWholeBytes
}

func (r *reach) ask(d *directory, f neighbour) {
	now := &r.past[len(r.past)-1]
	if now.asked == nearPeriod {
		r.past = append(r.past, period{})
		now = &r.past[len(r.past)-1]
	}
	now.asked++
	size := f.digest.SizeBytes()
	r.known[f.hash] = guess{in: d, bytes: size, period: len(r.past) - 1}
	d.waiting++
	d.waitingBytes += size
	r.wrong++
	r.unread += size
	r.found = append(r.found, f)
}

// reached records that a file at or below d was read. Once subdirectories of it were read from, it
// tries others.
func (r *reach) reached(d *directory) {
	if !d.hit && d.up != nil {
		d.up.hits++
		if d.tried {
			d.up.tries--
		}
	}
	d.hit = true
	if d.hits < nearHits || 2*d.tries > nearTries*d.hits {
		return
	}
	for ; d.tries < nearTries*d.hits && d.directories < d.tree.Len(); d.directories++ {
		if d.tree.Kind(d.directories) == tree.Dir {
			e := d.tree.At(d.directories)
			r.try(r.enter(d, e.Name, e.Digest))
		}
	}
}

// tryNamesake adds files in the subdirectory of d that has the name of a read file, without what is
// behind its first dot: there a module often has its parts.
func (r *reach) tryNamesake(d *directory, name string) {
	stem, _, _ := strings.Cut(name, ".")
	if e, ok := d.tree.Find(stem); ok && e.Kind == tree.Dir {
		r.try(r.enter(d, stem, e.Digest))
	}
}

// try adds files in d, whose neighbours were read.
func (r *reach) try(d *directory) {
	if d == nil || d.hit || d.tried {
		return
	}
	if r.widen(d); d.waiting > 0 {
		d.tried = true
		d.up.tries++
	}
}

// missed handles the end of a call that did not fetch a file: it was local already, or a waiting
// caller fetched it, or it will not come.
func (r *reach) missed(h PathHash) {
	if g := r.known[h]; !r.off && g.in != nil {
		delete(r.known, h)
		r.drop(g)
		r.past[g.period].asked--
	}
}

// giveUp reports, once, that too few neighbours were read in time.
func (r *reach) giveUp() bool {
	asked, right := 0, 0
	for _, p := range r.past[:max(len(r.past)-2, 0)] {
		asked += p.asked
		right += p.right
	}
	if r.off || asked == 0 || right*100 >= nearTooLittle*asked {
		return false
	}
	*r = reach{off: true}
	return true
}

// take returns the files to request.
func (r *reach) take() []neighbour {
	found := r.found
	r.found = nil
	return found
}
