package erofs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNotFound is the error of Image.Path for a number without an inode below the root.
var ErrNotFound = errors.New("no such inode in the image")

// An Image is an image that Write wrote. Its methods may be called at the same time.
type Image struct {
	r    io.ReaderAt
	uuid [16]byte

	mu           sync.Mutex
	inode, names [blockSize]byte             // for Node to read into
	recent       [recentDirs]*knownDirectory // by their numbers modulo recentDirs
	latest       [latestNodes]*knownNode     // by their numbers modulo latestNodes
}

// A knownNode is what Node returned for a number.
type knownNode struct {
	nid  uint64
	node Node
}

const (
	// recentDirs is how many directories an Image remembers: commands open many files in few.
	recentDirs = 64
	// latestNodes is how many inodes an Image remembers: similar commands open the same files.
	latestNodes = 128
	// mostKnown is the largest size of a directory whose names it remembers.
	mostKnown = 4 * blockSize
)

// OpenImage reads the head of an image. The caller keeps r open as long as it uses the Image.
func OpenImage(r io.ReaderAt) (*Image, error) {
	var b [superSize]byte
	if _, err := r.ReadAt(b[:], superOffset); err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	if le.Uint32(b[:]) != superMagic || b[12] != blockBits || le.Uint16(b[14:]) != rootNID {
		return nil, errors.New("open image: not one of this package")
	}
	return &Image{r: r, uuid: [16]byte(b[48:64])}, nil
}

// UUID returns Options.UUID.
func (m *Image) UUID() [16]byte { return m.uuid }

// Path returns the path of the inode with this number, relative to the root; the root's is empty.
// It costs as much as Node.
func (m *Image) Path(nid uint64) (string, error) {
	n, err := m.Node(nid)
	return n.Path, err
}

// Node returns the inode with this number. Unless that is known from the calls before, it takes a read
// of a block, and about two more for each level that is not known either, more in large directories.
// An invalid number or a damaged image causes an error, nothing worse.
func (m *Image) Node(nid uint64) (Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	slot := &m.latest[nid%latestNodes]
	if known := *slot; known != nil && known.nid == nid {
		return known.node, nil
	}
	d, err := m.readInode(nid, m.inode[:])
	node := Node{Mode: d.mode, Size: d.size, Redirect: d.redirect()}
	if err == nil {
		node.Path, err = m.pathLocked(nid, d.parent)
	}
	if err != nil {
		return Node{}, fmt.Errorf("path of inode %d: %w", nid, err)
	}
	*slot = &knownNode{nid, node}
	return node, nil
}

// pathLocked returns the path of an inode in the directory parent.
func (m *Image) pathLocked(nid uint64, parent uint32) (string, error) {
	if nid == rootNID {
		return "", nil
	}
	// A directory lies before its entries, so this ends.
	if parent < rootNID || uint64(parent) >= nid {
		return "", ErrNotFound
	}
	dir, err := m.directoryLocked(uint64(parent))
	if err != nil {
		return "", err
	}
	name, err := m.nameLocked(dir, nid)
	return dir.prefix + name, err
}

// A knownDirectory is a directory whose path is known.
type knownDirectory struct {
	nid    uint64
	inode  dirInode
	prefix string // its path with a slash, "" for the root
	asked  bool   // for a name
	// The numbers and names of the entries, in order, once it is asked for the second one; none if
	// they take more than mostKnown.
	nids  []uint32
	names []string
}

// directoryLocked returns the directory with that number.
func (m *Image) directoryLocked(nid uint64) (*knownDirectory, error) {
	slot := &m.recent[nid%recentDirs]
	if dir := *slot; dir != nil && dir.nid == nid {
		return dir, nil
	}
	inode, err := m.readInode(nid, m.inode[:])
	if err != nil {
		return nil, err
	}
	if inode.mode&unix.S_IFMT != unix.S_IFDIR || inode.size < 0 {
		return nil, ErrNotFound
	}
	inode.behind = bytes.Clone(inode.behind[:min(inode.size, int64(len(inode.behind)))])
	dir := &knownDirectory{nid: nid, inode: inode}
	if dir.prefix, err = m.pathLocked(nid, inode.parent); err != nil {
		return nil, err
	}
	if nid != rootNID {
		dir.prefix += "/"
	}
	*slot = dir
	return dir, nil
}

// nameLocked returns the name of the inode nid in dir. Numbers rise along the names.
func (m *Image) nameLocked(dir *knownDirectory, nid uint64) (string, error) {
	if !dir.asked || dir.inode.size > mostKnown {
		dir.asked = true
		return m.nameIn(&dir.inode, nid, m.names[:])
	}
	if dir.names == nil {
		if err := m.readNamesLocked(dir); err != nil {
			return "", err
		}
	}
	if i, ok := slices.BinarySearch(dir.nids, uint32(nid)); ok {
		return dir.names[i], nil
	}
	return "", ErrNotFound
}

// readNamesLocked sets the names of dir.
func (m *Image) readNamesLocked(dir *knownDirectory) error {
	var nids []uint32
	names := []string{}
	for i := range blocksOf(dir.inode.size) {
		entries, err := m.namesOf(&dir.inode, i, m.names[:])
		if err == nil {
			err = eachName(entries, func(nid uint64, _ byte, name []byte) error {
				nids, names = append(nids, uint32(nid)), append(names, string(name))
				return nil
			})
		}
		if err != nil {
			return err
		}
	}
	dir.nids, dir.names = nids, names
	return nil
}

// A dirInode is the part of an inode that Node needs.
type dirInode struct {
	inode
	// behind has the bytes after it, to the end of the block: of a directory those after its attributes.
	behind []byte
}

// readInode reads an inode into b, a block.
func (m *Image) readInode(nid uint64, b []byte) (d dirInode, err error) {
	if nid < rootNID || nid > formatBytes/slotSize {
		return d, ErrNotFound
	}
	n, err := m.r.ReadAt(b, int64(nid)*slotSize)
	if errors.Is(err, io.EOF) && n >= extendedSize {
		err = nil
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = ErrNotFound
		}
		return d, err
	}
	size := compactSize
	format := le.Uint16(b)
	if units := int(le.Uint16(b[2:])); units > 0 {
		d.xattrs = xattrHeaderSize + 4*(units-1)
	}
	d.mode = uint32(le.Uint16(b[4:]))
	d.block, d.parent = le.Uint32(b[16:]), le.Uint32(b[20:])
	if d.extended = format&formatExtended != 0; d.extended {
		size = extendedSize
		d.size = int64(le.Uint64(b[8:]))
	} else {
		d.size = int64(le.Uint32(b[8:]))
	}
	d.layout = format &^ formatExtended
	d.behind = b[size:n]
	if fileType(d.mode) == typeDir {
		d.behind = d.behind[min(d.xattrs, len(d.behind)):]
	}
	return d, nil
}

// nameIn returns the name of the inode nid in the large directory d; b is a block to work in. It
// finds the block by halving.
func (m *Image) nameIn(d *dirInode, nid uint64, b []byte) (string, error) {
	from, to := int64(0), blocksOf(d.size)
	for from < to {
		mid := from + (to-from)/2
		entries, err := m.namesOf(d, mid, b)
		if err != nil {
			return "", err
		}
		name, order, err := search(entries, nid)
		switch {
		case err != nil || name != "":
			return name, err
		case order < 0:
			to = mid
		case order > 0:
			from = mid + 1
		default:
			return "", ErrNotFound
		}
	}
	return "", ErrNotFound
}

// namesOf returns the i-th block of the directory d, which may be b.
func (m *Image) namesOf(d *dirInode, i int64, b []byte) ([]byte, error) {
	entries := b[:min(blockSize, d.size-i<<blockBits)]
	if len(entries) < blockSize && d.layout == layoutInline {
		if len(entries) > len(d.behind) {
			return nil, ErrNotFound
		}
		return d.behind[:len(entries)], nil
	}
	_, err := m.r.ReadAt(entries, (int64(d.block)+i)<<blockBits)
	return entries, err
}

// search finds nid in a block of a directory. Without a name, order is the side of this block where
// it would be, or 0 if on neither. "." and ".." do not count; a block with nothing else is the
// last.
func search(b []byte, nid uint64) (name string, order int, err error) {
	below, above := false, false
	err = eachName(b, func(at uint64, _ byte, text []byte) error {
		switch {
		case at == nid:
			name = string(text)
			return errEnough
		case at < nid:
			below = true
		default:
			above = true
		}
		return nil
	})
	switch {
	case err == errEnough:
		return name, 0, nil
	case err != nil:
		return "", 0, err
	case below && above:
		return "", 0, nil
	case below:
		return "", 1, nil
	default:
		return "", -1, nil
	}
}

// errEnough ends eachName.
var errEnough = errors.New("found")

// eachName calls visit with the names in a block of a directory but "." and "..", until that fails.
func eachName(b []byte, visit func(nid uint64, kind byte, name []byte) error) error {
	if len(b) < direntSize {
		return ErrNotFound
	}
	first := int(le.Uint16(b[8:]))
	if first%direntSize != 0 || first == 0 || first > len(b) {
		return ErrNotFound
	}
	for i := 0; i < first; i += direntSize {
		start, end := int(le.Uint16(b[i+8:])), len(b)
		if i+direntSize < first {
			end = int(le.Uint16(b[i+direntSize+8:]))
		}
		if start < first || start >= end || end > len(b) {
			return ErrNotFound
		}
		text, _, _ := bytes.Cut(b[start:end], []byte{0})
		if len(text) == 0 {
			return ErrNotFound
		}
		if name := string(text); name == "." || name == ".." {
			continue
		}
		if err := visit(le.Uint64(b[i:]), b[i+10], text); err != nil {
			return err
		}
	}
	return nil
}
