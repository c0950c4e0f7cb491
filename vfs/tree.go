package vfs

import (
	"hash/maphash"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// node is one path that the kernel knows. It lives as long as the kernel
// remembers it or a node below it. Except for lookups and children it never changes.
type node struct {
	tree.Entry
	id     uint64 // node id of the FUSE protocol
	ino    uint64 // a hash of the path: the same after the kernel forgot the node
	parent *node  // nil for the root

	// Guarded by Root.mu.
	lookups  uint64           // how often the kernel was told of it and has not forgotten
	children map[string]*node // those in the table
}

func (r *Root) addRootNode() {
	r.nodes[fuse.FUSE_ROOT_ID] = &node{
		Entry: tree.Entry{
			Kind: Directory, Digest: r.spec.Digest, Perm: 0o755, MTime: time.Unix(tree.DefaultMTime, 0),
		},
		id:      fuse.FUSE_ROOT_ID,
		ino:     fuse.FUSE_ROOT_ID,
		lookups: 1,
	}
	r.lastID = fuse.FUSE_ROOT_ID
}

// node returns the node that the kernel calls id, nil if there is none.
func (r *Root) node(id uint64) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[id]
}

// know returns the node of e below parent, new or not, and counts that the
// kernel is told of it.
func (r *Root) know(parent *node, e tree.Entry) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := parent.children[e.Name]
	if n == nil {
		r.lastID++
		// The node may outlive the directory, whose memory the strings are part of.
		e.Name, e.Target = strings.Clone(e.Name), strings.Clone(e.Target)
		n = &node{Entry: e, id: r.lastID, ino: r.inoOf(parent, e.Name), parent: parent}
		if parent.children == nil {
			parent.children = map[string]*node{}
		}
		parent.children[e.Name] = n
		r.nodes[n.id] = n
	}
	n.lookups++
	return n
}

// forgetNode takes back count tellings and drops what nothing refers to any more.
func (r *Root) forgetNode(id, count uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[id]
	if n == nil || n.parent == nil {
		return
	}
	n.lookups -= min(count, n.lookups)
	for n.parent != nil && n.lookups == 0 && len(n.children) == 0 {
		delete(r.nodes, n.id)
		delete(n.parent.children, n.Name)
		n = n.parent
	}
}

// inoOf returns the inode number of a path. Only the hash of it is kept for
// paths that were read, so a collision (of 64 bits, with a seed that nobody
// knows) would hide a read, and do no other harm.
func (r *Root) inoOf(parent *node, name string) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	maphash.WriteComparable(&h, parent.ino)
	_, _ = h.WriteString(name)
	return max(h.Sum64(), fuse.FUSE_ROOT_ID+1)
}

// pathLocked returns the path of n from the root, "" for the root itself.
func (n *node) pathLocked() string {
	size, depth := 0, 0
	for p := n; p.parent != nil; p = p.parent {
		size += len(p.Name) + 1
		depth++
	}
	names := make([]string, depth)
	for p := n; p.parent != nil; p = p.parent {
		depth--
		names[depth] = p.Name
	}
	var b strings.Builder
	b.Grow(size)
	for i, name := range names {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(name)
	}
	return b.String()
}

// attr fills in what stat(2) shows of n.
func (r *Root) attr(n *node, a *fuse.Attr) {
	*a = fuse.Attr{
		Ino:   n.ino,
		Mode:  n.Perm | typeOf(n.Kind),
		Nlink: 1,
		Owner: r.fs.owner,
	}
	switch n.Kind {
	case File:
		a.Size = uint64(n.Digest.SizeBytes())
		a.Blocks = (a.Size + 511) / 512
	case Symlink:
		a.Size = uint64(len(n.Target))
	case Directory:
		a.Size = 4096
		a.Blocks = 8
	}
	a.SetTimes(&n.MTime, &n.MTime, &n.MTime)
}

func typeOf(k Kind) uint32 {
	switch k {
	case Directory:
		return fuse.S_IFDIR
	case Symlink:
		return fuse.S_IFLNK
	}
	return fuse.S_IFREG
}
