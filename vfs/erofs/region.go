package erofs

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// A Region is the part of an image that shows one directory: its inode, its listing, and the inodes
// of its files and symlinks. Directories in it have regions of their own, anywhere in the image, so
// an image can be written directory by directory, in any order, while it is mounted: all that must
// be known of a directory before its parent is written is where its region lies.
type Region struct {
	At     int64  // its beginning, a multiple of BlockSize and not 0
	Parent uint32 // number of the inode of the directory above; of the root its own
	Dir    Entry  // its content; its Name is ignored
	// NIDs are the numbers of the inodes of Dir.Entries. The caller sets the numbers of
	// directories, see NID; Bytes sets the others.
	NIDs []uint32
}

// BlockSize is the unit in which the kernel reads images.
const BlockSize = blockSize

// MaxRegionAt is the first address at which a region cannot begin.
const MaxRegionAt = formatBytes

// NID returns the number of the inode of the directory whose region begins at that address.
func NID(at int64) uint32 { return uint32(at / slotSize) }

// RegionAt is the inverse of NID for the inode of any directory; for other files it is the position
// of the inode.
func RegionAt(nid uint64) int64 { return int64(nid) * slotSize }

// Head returns the first block of an image whose root has the region at BlockSize. It claims the
// maximum size of an image.
func Head(o Options) ([]byte, error) {
	o, err := o.validate()
	if err != nil {
		return nil, fmt.Errorf("write image: %w", err)
	}
	b := make([]byte, blockSize)
	super := b[superOffset:][:superSize]
	putSuper(super, &o, 0, formatBytes>>blockBits)
	le.PutUint16(super[14:], uint16(NID(BlockSize)))
	return b, nil
}

// RegionBytes returns the maximum size of the region of a directory whose Directory message has
// that many bytes, if no Redirect is longer than longest.
func RegionBytes(encoded int64, longest int) int64 {
	const leastEntry = 8 // a symlink of a byte to a byte
	redirect := align4(longest)
	each := int64(extendedSize + slotSize + redirectSize("") + redirect + direntSize)
	// A block of a listing may lack room for a name, and one of inodes for a target: up to as much
	// again, and a block.
	return (blocksOf((encoded/leastEntry+1)*each+4*encoded) + 4) << blockBits
}

// Bytes returns the region, whole blocks, and fills in r.NIDs.
func (r *Region) Bytes(o Options) ([]byte, error) { return r.Append(nil, o) }

// Append appends the region, whole blocks, to b, and fills in r.NIDs. After an error b is the same.
func (r *Region) Append(b []byte, o Options) ([]byte, error) {
	o, err := o.validate()
	if err != nil {
		return b, fmt.Errorf("write directory: %w", err)
	}
	l := newLayout(o)
	p := regionPlan{layout: l, region: r, list: newListing(r.Dir.Entries)}
	if err := p.place(); err != nil {
		return b, fmt.Errorf("write directory: %w", err)
	}
	from, n := len(b), int(blocksOf(p.end)<<blockBits)
	b = slices.Grow(b, n)[:from+n]
	clear(b[from:])
	p.write(b[from:])
	return b, nil
}

// A regionPlan has the positions of all parts of a region.
type regionPlan struct {
	layout *layout
	region *Region
	list   listing
	size   int64 // of the listing
	inline bool  // it lies behind the inode
	end    int64 // of all that was placed, from the start of the region
}

func (p *regionPlan) place() error {
	r := p.region
	if r.At%blockSize != 0 || r.At <= 0 || r.At >= MaxRegionAt || r.Dir.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("no directory can be at %d", r.At)
	}
	p.size, _ = p.list.measure()
	n := int64(p.layout.headSize(&r.Dir, p.size))
	if p.inline = n+p.size <= blockSize; p.inline {
		p.end = n + p.size
	} else {
		p.end = blockSize + blocksOf(p.size)<<blockBits
	}
	previous := ""
	for i := range r.Dir.Entries {
		e := &r.Dir.Entries[i]
		if err := checkName(e.Name, previous); err != nil {
			return fmt.Errorf("%q: %w", e.Name, err)
		}
		previous = e.Name
		if err := p.placeEntry(i, e); err != nil {
			return fmt.Errorf("%q: %w", e.Name, err)
		}
	}
	return nil
}

func (p *regionPlan) placeEntry(i int, e *Entry) error {
	kind, err := checkEntry(e)
	if err != nil {
		return err
	}
	p.end = (p.end + slotSize - 1) &^ (slotSize - 1)
	switch kind {
	case typeDir: // its number is given
	case typeFile:
		p.region.NIDs[i] = NID(p.region.At + p.end)
		p.end += int64(p.layout.headSize(e, e.Size))
	case typeSymlink:
		n, target := p.layout.inodeSize(e, int64(len(e.Target))), len(e.Target)
		if n+target <= blockSize && p.end&(blockSize-1)+int64(n+target) > blockSize {
			p.end = blocksOf(p.end) << blockBits // data after an inode must not cross a block
		}
		p.region.NIDs[i] = NID(p.region.At + p.end)
		at, _ := behind(p.end+int64(n), int64(target))
		p.end = at + int64(target)
	}
	return nil
}

// behind returns the position of the target of a symlink whose inode ends at end: directly after
// it, or, if it would cross a block, in separate blocks.
func behind(end, target int64) (at int64, inline bool) {
	if offset := end & (blockSize - 1); offset > 0 && offset+target <= blockSize {
		return end, true
	}
	return blocksOf(end) << blockBits, false
}

// write writes all parts at their positions in b, which has zeros.
func (p *regionPlan) write(b []byte) {
	r := p.region
	d := p.layout.inode(&r.Dir)
	d.size = p.size
	at := p.layout.headSize(&r.Dir, p.size)
	if p.inline {
		d.layout = layoutInline
		p.listing(b[at:][:p.size], 0, p.list.len())
	} else {
		d.block = uint32(r.At>>blockBits) + 1
		for from, block := 0, b[blockSize:]; from < p.list.len(); block = block[blockSize:] {
			to, _ := p.list.fill(from)
			p.listing(block[:blockSize], from, to)
			from = to
		}
	}
	p.layout.put(b, &r.Dir, d)
	for i := range r.Dir.Entries {
		e := &r.Dir.Entries[i]
		at := int64(r.NIDs[i])*slotSize - r.At
		switch d := p.layout.inode(e); fileType(e.Mode) {
		case typeFile:
			d.size = e.Size
			p.layout.put(b[at:], e, d)
		case typeSymlink:
			d.size = int64(len(e.Target))
			target, inline := behind(at+int64(p.layout.inodeSize(e, d.size)), d.size)
			if d.layout = layoutInline; !inline {
				d.layout, d.block = layoutPlain, uint32((r.At+target)>>blockBits)
			}
			copy(b[target:], e.Target)
			p.layout.put(b[at:], e, d)
		}
	}
}

func (p *regionPlan) listing(b []byte, from, to int) {
	p.list.put(b, from, to, numbers{entries: p.region.NIDs, self: NID(p.region.At), parent: p.region.Parent})
}
