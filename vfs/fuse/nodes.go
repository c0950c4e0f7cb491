package fuse

import (
	"strings"
	"sync"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/budget"
)

// Node is one path that the kernel knows. It lives as long as the kernel remembers it or a node
// below it. It never changes, except for the part that nodeTable.mu guards.
type Node struct {
	tree.Entry
	id     uint64 // node id of the FUSE protocol
	ino    uint64 // a hash of the path: the same after the kernel forgot the node
	parent *Node  // nil for the root of the area
	area   area
	cover  Cover // of a directory: the part that images show

	// Guarded by nodeTable.mu.
	lookups  uint64           // lookups of the kernel that it has not forgotten
	children map[string]*Node // those in the table
	looked   tree.Look        // reported accesses
}

// area is a part of the FUSE layer.
type area uint8

const (
	// treeArea is the input root. It is all there is unless the root shows images.
	treeArea area = iota
	// topArea is the parent of the two other folders.
	topArea
	// blobArea has the files of blobs, as BlobFolder has them, for overlayfs.
	blobArea
)

// The folders in topArea.
const (
	treeName = "tree"
	blobName = "blob"
)

// nodeBytes is the memory of a node besides its name and target, including its entry in the table.
const nodeBytes = 384

// bytes returns the memory of the node.
func (n *Node) bytes() int64 { return int64(nodeBytes + len(n.Name) + len(n.Target)) }

// nodeTable has the nodes that the kernel knows. How many these are is up to the command: one
// directory may be at very many paths.
type nodeTable struct {
	inodes Inodes
	memory *budget.Holder

	mu     sync.Mutex
	byID   map[uint64]*Node // as the kernel knows them
	lastID uint64           // of the newest node; ids are never used again
}

// init makes the permanent nodes: the node of the input root d and, if images show the parts of it
// in c, the node of the folder of blobs.
func (t *nodeTable) init(d digest.Digest, c Cover) {
	t.byID = map[uint64]*Node{}
	input := &Node{
		Entry:   tree.Entry{Kind: tree.Dir, Digest: d, Perm: 0o755, MTime: time.Unix(tree.DefaultMTime, 0)},
		ino:     RootInode,
		cover:   c,
		lookups: 1,
	}
	first := input
	if c != nil {
		// Only for overlayfs, which acts with our privileges.
		closed := tree.Entry{Kind: tree.Dir, Perm: 0o700, MTime: input.MTime}
		blobs := &Node{Entry: closed, area: blobArea, lookups: 1}
		blobs.ino = t.inodes.Of(RootInode, "/"+blobName)
		first = &Node{Entry: closed, area: topArea, lookups: 1, children: map[string]*Node{treeName: input, blobName: blobs}}
		first.ino = t.inodes.Of(RootInode, "/")
		t.addLocked(first)
		t.addLocked(blobs)
	}
	t.addLocked(input)
}

// addLocked enters n. The first that is entered is the root of the mount.
func (t *nodeTable) addLocked(n *Node) {
	t.lastID++
	n.id = t.lastID
	t.byID[n.id] = n
}

// get returns the node that the kernel calls id, nil if there is none.
func (t *nodeTable) get(id uint64) *Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// know returns the node of e below parent, new or existing, and counts a lookup of the kernel; nil:
// there is no memory for one more.
func (t *nodeTable) know(parent *Node, e tree.Entry, rest Cover) *Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := parent.children[e.Name]
	if n == nil {
		// The node may outlive the directory, which the strings point into.
		e.Name, e.Target = strings.Clone(e.Name), strings.Clone(e.Target)
		n = &Node{Entry: e, ino: t.inodes.Of(parent.ino, e.Name), parent: parent, area: parent.area, cover: rest}
		if !t.memory.Take(n.bytes()) {
			return nil
		}
		if parent.children == nil {
			parent.children = map[string]*Node{}
		}
		parent.children[e.Name] = n
		t.addLocked(n)
	}
	n.lookups++
	return n
}

// forget subtracts count lookups and drops nodes without references.
func (t *nodeTable) forget(id, count uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byID[id]
	if n == nil || n.parent == nil {
		return
	}
	n.lookups -= min(count, n.lookups)
	for n.parent != nil && n.lookups == 0 && len(n.children) == 0 {
		t.memory.Give(n.bytes())
		delete(t.byID, n.id)
		delete(n.parent.children, n.Name)
		n = n.parent
	}
}

// hasChild reports whether there is a node of that name below n.
func (t *nodeTable) hasChild(n *Node, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := n.children[name]
	return ok
}

// noteLook records an access to n, and reports whether it is the first.
func (t *nodeTable) noteLook(n *Node, look tree.Look) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	again := n.looked&look == look
	n.looked |= look
	return !again
}

// lackedBy returns the cover of the parent directory, if an image shows that and lacks n; else nil.
func (n *Node) lackedBy() Cover {
	if n.parent == nil || n.parent.cover == nil || n.cover != nil || !n.parent.cover.Whole() {
		return nil
	}
	return n.parent.cover
}

// Inode is the inode number, which no other path of the root has.
func (n *Node) Inode() uint64 { return n.ino }

// Path returns the path of n from the root, "" for the root itself.
func (n *Node) Path() string {
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
