package prefetch

import (
	"errors"
	"fmt"
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// ErrTooLarge means that an input root has more entries than the caller's limit.
var ErrTooLarge = errors.New("input root has too many files and folders")

// A Record is the record of an action's runs in a store, for display.
type Record struct {
	// Profile has the expected reads of the next run.
	Profile *Profile
	last    []PathHash // ascending; nil if it is not known
}

// ParseRecord decodes an exact record of a store. The record may be a FileSystemAccessProfile from
// a service. It returns false if the record is malformed.
func ParseRecord(value []byte) (Record, bool) {
	k := exactRules(ProfileOptions{}.withDefaults()).parse(value, digest.SHA256)
	if k.filter == nil {
		return Record{}, false
	}
	r := Record{Profile: k.filter()}
	if h := k.history; h != nil && len(h.runs) > 0 {
		r.last = []PathHash{}
		for i, path := range h.paths {
			if h.readers[i]>>h.newest&1 != 0 {
				r.last = append(r.last, path)
			}
		}
	}
	return r, true
}

// KnowsLast reports whether the reads of the last run are known.
func (r Record) KnowsLast() bool { return r.last != nil }

// ReadLast reports whether the last run read the path with that hash, without false positives.
func (r Record) ReadLast(h PathHash) bool {
	_, ok := slices.BinarySearch(r.last, h)
	return ok
}

// A Mark says which runs read a path.
type Mark int

// All marks.
const (
	NeverRead Mark = iota
	Foreseen       // read by a run before the last one, or by an unknown run
	ReadLast       // by the last run
	Marks          // number of marks
)

// A Node is a file or folder of an input root with its mark.
type Node struct {
	Name   string // empty for the root
	Folder bool
	Mark   Mark
	// Sums has the files at and below the node, by mark.
	Sums [Marks]Amount
	// Children has the files of a folder, then its folders. It may lack the content of folders that
	// no run has read.
	Children []*Node
}

// All returns the total of the files at and below n.
func (n *Node) All() (all Amount) {
	for _, a := range n.Sums {
		all = all.plus(a)
	}
	return all
}

// LayOver marks the paths of the input root root that r knows. directories are the root's
// directories in any order; a missing one counts as empty. Folders that no run has read get only
// sums, unless no reads are known at all and the folder has few files. If there are more than
// atMost nodes, it returns ErrTooLarge.
func LayOver(r Record, root digest.Digest, directories []*repb.Directory, atMost int) (*Node, error) {
	b := &overlay{
		record: r, function: root.Function(), left: atMost,
		knows:       r.Profile != nil || r.KnowsLast(),
		directories: make(map[digest.Digest]*repb.Directory, len(directories)),
		unread:      map[digest.Digest]Amount{},
	}
	for _, m := range directories {
		d, _, err := digest.OfMessage(b.function, m)
		if err != nil {
			return nil, fmt.Errorf("input root: %w", err)
		}
		b.directories[d] = m
	}
	n := &Node{Folder: true, Mark: b.mark(RootHash)}
	if n.Mark == NeverRead {
		n.Mark = Foreseen // every run begins in its root
	}
	if err := b.fill(n, RootHash, root); err != nil {
		return nil, err
	}
	return n, nil
}

type overlay struct {
	record      Record
	function    digest.Function
	directories map[digest.Digest]*repb.Directory
	unread      map[digest.Digest]Amount // totals below unread folders
	left        int                      // nodes
	knows       bool                     // at least one run is known
}

// mark returns the Mark of the path with that hash.
func (b *overlay) mark(h PathHash) Mark {
	switch {
	case b.record.ReadLast(h):
		return ReadLast
	case b.record.Profile != nil && b.record.Profile.Contains(h):
		return Foreseen
	}
	return NeverRead
}

// fill adds the entries of the directory d to its node.
func (b *overlay) fill(n *Node, h PathHash, d digest.Digest) error {
	m := b.directories[d]
	if b.left -= len(m.GetFiles()) + len(m.GetDirectories()); b.left < 0 {
		return ErrTooLarge
	}
	for _, f := range m.GetFiles() {
		child := &Node{Name: f.GetName(), Mark: b.mark(h.Child(f.GetName()))}
		child.Sums[child.Mark] = Amount{1, max(f.GetDigest().GetSizeBytes(), 0)}
		n.take(child)
	}
	for _, e := range m.GetDirectories() {
		below, err := digest.FromProto(b.function, e.GetDigest())
		if err != nil {
			return fmt.Errorf("folder %q: %w", e.GetName(), err)
		}
		childHash := h.Child(e.GetName())
		child := &Node{Name: e.GetName(), Folder: true, Mark: b.mark(childHash)}
		if child.Mark == NeverRead && (b.knows || b.count(below).Files > int64(b.left)) {
			child.Sums[NeverRead] = b.count(below)
		} else if err := b.fill(child, childHash, below); err != nil {
			return err
		}
		n.take(child)
	}
	return nil
}

func (n *Node) take(child *Node) {
	n.Children = append(n.Children, child)
	for i, a := range child.Sums {
		n.Sums[i] = n.Sums[i].plus(a)
	}
}

// count returns the total below a folder, counted once however often the tree contains it. No
// directory contains itself, because it would have to contain its own digest.
func (b *overlay) count(d digest.Digest) Amount {
	if sum, ok := b.unread[d]; ok {
		return sum
	}
	var sum Amount
	for _, f := range b.directories[d].GetFiles() {
		sum = sum.plus(Amount{1, max(f.GetDigest().GetSizeBytes(), 0)})
	}
	for _, e := range b.directories[d].GetDirectories() {
		if below, err := digest.FromProto(b.function, e.GetDigest()); err == nil {
			sum = sum.plus(b.count(below))
		}
	}
	b.unread[d] = sum
	return sum
}
