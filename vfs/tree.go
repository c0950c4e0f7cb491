package vfs

import (
	"hash/maphash"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// node is one path that the kernel knows. It lives as long as the kernel
// remembers it or a node below it. Except for what Root.mu guards it never changes.
type node struct {
	tree.Entry
	id     uint64 // node id of the FUSE protocol
	ino    uint64 // a hash of the path: the same after the kernel forgot the node
	parent *node  // nil for the root of the area
	area   area
	cover  *cover // of a directory: what images show of it
	hole   *image // that lacks this directory

	// Guarded by Root.mu.
	lookups  uint64           // how often the kernel was told of it and has not forgotten
	children map[string]*node // those in the table
	looked   tree.Look        // what was reported to OnLook
}

// area is a part of the FUSE layer.
type area uint8

const (
	// treeArea is the input root. It is all there is unless the root shows images.
	treeArea area = iota
	// topArea is the folder of the two others.
	topArea
	// blobArea has the files of blobs, as BlobFolder has them, for overlayfs.
	blobArea
)

// The folders in topArea.
const (
	treeName = "tree"
	blobName = "blob"
)

// rootIno is the inode number of the input root.
const rootIno = fuse.FUSE_ROOT_ID

// addRootNodes makes the nodes that are always there.
func (r *Root) addRootNodes() {
	input := &node{
		Entry:   tree.Entry{Kind: Directory, Digest: r.spec.Digest, Perm: 0o755, MTime: time.Unix(tree.DefaultMTime, 0)},
		ino:     rootIno,
		cover:   r.cover,
		lookups: 1,
	}
	first := input
	if r.cover != nil {
		// Only for overlayfs, which acts with our privileges.
		closed := tree.Entry{Kind: Directory, Perm: 0o700, MTime: input.MTime}
		blobs := &node{Entry: closed, area: blobArea, lookups: 1}
		blobs.ino = r.inoOf(rootIno, "/"+blobName)
		first = &node{Entry: closed, area: topArea, lookups: 1, children: map[string]*node{treeName: input, blobName: blobs}}
		first.ino = r.inoOf(rootIno, "/")
		r.addNodeLocked(first)
		r.addNodeLocked(blobs)
	}
	r.addNodeLocked(input)
}

// addNodeLocked enters n. The first that is entered is the root of the mount.
func (r *Root) addNodeLocked(n *node) {
	r.lastID++
	n.id = r.lastID
	r.nodes[n.id] = n
}

// node returns the node that the kernel calls id, nil if there is none.
func (r *Root) node(id uint64) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[id]
}

// know returns the node of e below parent, new or not, and counts that the
// kernel is told of it.
func (r *Root) know(parent *node, e tree.Entry, rest *cover) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := parent.children[e.Name]
	if n == nil {
		// The node may outlive the directory, whose memory the strings are part of.
		e.Name, e.Target = strings.Clone(e.Name), strings.Clone(e.Target)
		n = &node{Entry: e, ino: r.inoOf(parent.ino, e.Name), parent: parent, area: parent.area, cover: rest}
		if parent.cover != nil && rest == nil {
			n.hole = parent.cover.image
		}
		if parent.children == nil {
			parent.children = map[string]*node{}
		}
		parent.children[e.Name] = n
		r.addNodeLocked(n)
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
func (r *Root) inoOf(parent uint64, name string) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	maphash.WriteComparable(&h, parent)
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
		Owner: fuse.Owner{Uid: r.owner.UID, Gid: r.owner.GID},
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
