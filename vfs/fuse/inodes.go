package fuse

import (
	"hash/maphash"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// RootInode is the inode number of the input root.
const RootInode = fuse.FUSE_ROOT_ID

// Inodes are the inode numbers of one root. They are hashes of paths, and so can stand for the
// paths. A collision (of 64 bits, with a secret seed) would hide a read, and do no other harm.
type Inodes struct{ seed maphash.Seed }

// NewInodes returns unique numbers.
func NewInodes() Inodes { return Inodes{maphash.MakeSeed()} }

// Of returns the number of a name in the directory with the number parent.
func (i Inodes) Of(parent uint64, name string) uint64 {
	var h maphash.Hash
	h.SetSeed(i.seed)
	maphash.WriteComparable(&h, parent)
	_, _ = h.WriteString(name)
	return max(h.Sum64(), RootInode+1)
}
