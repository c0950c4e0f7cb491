package erofs

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A layout has the positions of all parts of an image: the superblock and then the inodes, those of
// one directory together, directory after directory; from the next whole block the blocks of
// directories, and last those of symlinks.
type layout struct {
	o     Options
	sec   int64 // of o.Epoch
	nsec  int
	dirs  []folder // the root, and each one's subdirectories in the order of dirs
	nids  []uint32 // of the entries of dirs[0], of dirs[1], and so on; not of the root
	end   int64    // of the metadata
	dirBl int64    // number of blocks of directories
	links []string // targets of symlinks that have a block
}

// A folder is a directory that has its place.
type folder struct {
	entry  *Entry
	list   listing
	parent int    // index in dirs; of the root its own
	nid    uint32 // its inode
	first  int    // index in nids of its first entry
	block  uint32 // number of its first block, counted from that of the root
	last   int    // index in list of the first entry in its last block
	size   int64  // of all its blocks
}

func newLayout(o Options) *layout {
	return &layout{
		o: o, sec: o.Epoch.Unix(), nsec: o.Epoch.Nanosecond(),
		end: rootNID * slotSize,
	}
}

// add checks and places the tree.
func (l *layout) add(root *Entry) error {
	if root.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New("the root is not a directory")
	}
	if _, err := l.place(root, 0); err != nil {
		return fmt.Errorf("the root: %w", err)
	}
	for i := 0; i < len(l.dirs); i++ {
		l.dirs[i].first = len(l.nids)
		entries := l.dirs[i].entry.Entries
		l.nids = slices.Grow(l.nids, len(entries))
		previous := ""
		for j := range entries {
			e := &entries[j]
			err := checkName(e.Name, previous)
			if err == nil {
				var nid uint32
				nid, err = l.place(e, i)
				l.nids = append(l.nids, nid)
			}
			if err != nil {
				return fmt.Errorf("%q: %w", l.path(i, e.Name), err)
			}
			previous = e.Name
		}
	}
	return nil
}

func checkName(name, previous string) error {
	switch {
	case name == "" || name == "." || name == ".." || strings.IndexByte(name, '/') >= 0 ||
		strings.IndexByte(name, 0) >= 0:
		return errors.New("not a name")
	case len(name) > maxName:
		return unix.ENAMETOOLONG
	case name <= previous:
		return fmt.Errorf("not in order: comes after %q", previous)
	}
	return nil
}

// path returns the path of name in the directory dirs[i], for errors.
func (l *layout) path(i int, name string) string {
	parts := []string{name}
	for ; i != 0; i = l.dirs[i].parent {
		parts = append(parts, l.dirs[i].entry.Name)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "/")
}

// place checks e, an entry of dirs[parent], and gives it its place. A directory is appended to
// dirs.
func (l *layout) place(e *Entry, parent int) (nid uint32, err error) {
	kind, err := checkEntry(e)
	if err != nil {
		return 0, err
	}
	switch kind {
	case typeFile:
		nid = l.take(l.headSize(e, e.Size), 0)
	case typeDir:
		f := folder{entry: e, list: newListing(e.Entries), parent: parent, block: uint32(l.dirBl)}
		f.size, f.last = f.list.measure()
		n, tail := l.headSize(e, f.size), tailOf(f.size)
		f.nid = l.take(n, tail)
		l.dirBl += f.size >> blockBits
		if tail > 0 && !inlined(f.nid, n, tail) {
			l.dirBl++
		}
		nid = f.nid
		l.dirs = append(l.dirs, f)
	case typeSymlink:
		n := l.inodeSize(e, int64(len(e.Target)))
		nid = l.take(n, len(e.Target))
		if !inlined(nid, n, len(e.Target)) {
			l.links = append(l.links, e.Target)
		}
	}
	if size := l.size(); size > l.o.MaxBytes {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, l.o.MaxBytes)
	}
	return nid, nil
}

// checkEntry returns the type of an entry that an image can show.
func checkEntry(e *Entry) (kind byte, err error) {
	kind = fileType(e.Mode)
	switch {
	case e.Mode&^(unix.S_IFMT|0o7777) != 0:
		return 0, fmt.Errorf("mode %#o", e.Mode)
	case kind != typeDir && len(e.Entries) > 0:
		return 0, errors.New("has entries and is not a directory")
	case kind == typeFile:
		return kind, checkFile(e)
	case kind == typeSymlink && (e.Target == "" || len(e.Target) > maxTarget || strings.IndexByte(e.Target, 0) >= 0):
		return 0, errors.New("not a target of a symlink")
	case kind == 0:
		return 0, fmt.Errorf("mode %#o is not of a file, directory or symlink", e.Mode)
	}
	return kind, nil
}

func checkFile(e *Entry) error {
	switch {
	case e.Size < 0:
		return fmt.Errorf("size %d", e.Size)
	case e.Size == 0:
		return nil
	case e.Redirect == "":
		return errors.New("has a size and no data")
	case len(e.Redirect) > maxPath:
		return fmt.Errorf("path of data: %w", unix.ENAMETOOLONG)
	case e.Redirect[0] != '/' || e.Redirect[len(e.Redirect)-1] == '/' ||
		strings.Contains(e.Redirect, "//") || strings.IndexByte(e.Redirect, 0) >= 0:
		// Overlayfs would not follow it.
		return fmt.Errorf("%q is not an absolute path of data", e.Redirect)
	}
	return nil
}

// compact reports whether the small form of inodes can hold e with data of this size.
func (l *layout) compact(e *Entry, size int64) bool {
	return size <= math.MaxUint32 && l.o.UID <= math.MaxUint16 && l.o.GID <= math.MaxUint16 &&
		e.MTime.Unix() == l.sec && e.MTime.Nanosecond() == l.nsec
}

func (l *layout) inodeSize(e *Entry, size int64) int {
	if l.compact(e, size) {
		return compactSize
	}
	return extendedSize
}

// headSize is the size of the inode of e and of its attributes.
func (l *layout) headSize(e *Entry, size int64) int { return l.inodeSize(e, size) + xattrSize(e) }

// inode returns the inode of an entry without the position of its data.
func (l *layout) inode(e *Entry) inode {
	return inode{
		mode: e.Mode, uid: l.o.UID, gid: l.o.GID, sec: e.MTime.Unix(), nsec: e.MTime.Nanosecond(), layout: layoutPlain,
	}
}

// put writes the inode of an entry and its attributes to b, headSize zeros.
func (l *layout) put(b []byte, e *Entry, i inode) {
	n := l.inodeSize(e, i.size)
	i.extended, i.xattrs = n == extendedSize, xattrSize(e)
	if e.hasData() {
		i.block = noBlock
	}
	i.put(b[:n])
	putXattrs(b[n:], e)
}

// take takes n bytes at the end of the metadata, and tail more if that pays: data after an inode
// must not cross a block. It skips the rest of a block if that wastes less than a block for the
// tail would. inlined reports whether the tail fits.
func (l *layout) take(n, tail int) (nid uint32) {
	pos := l.end
	if rest := int(-pos & (blockSize - 1)); rest > 0 && n+tail > rest && tail > 0 &&
		n+tail <= blockSize && rest <= blockSize-tail {
		pos += int64(rest)
	}
	// Beyond formatBytes the number is wrong, but then the image is too large.
	nid = uint32(pos / slotSize)
	if inlined(nid, n, tail) {
		n += tail
	}
	l.end = (pos + int64(n) + slotSize - 1) &^ (slotSize - 1)
	return nid
}

// inlined reports whether tail bytes fit after the n bytes of the inode in the same block.
func inlined(nid uint32, n, tail int) bool {
	offset := int(int64(nid) * slotSize & (blockSize - 1))
	return offset+n+tail <= blockSize
}

// tailOf is the part of a size that does not fill a block.
func tailOf(size int64) int { return int(size & (blockSize - 1)) }

// size returns the size of the image so far, in bytes.
func (l *layout) size() int64 {
	return (blocksOf(l.end) + l.dirBl + int64(len(l.links))) << blockBits
}

func fileType(mode uint32) byte {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return typeFile
	case unix.S_IFDIR:
		return typeDir
	case unix.S_IFLNK:
		return typeSymlink
	}
	return 0
}
