package erofs

import (
	"encoding/binary"
	"math"
)

// The on-disk format, as of fs/erofs/erofs_fs.h and Documentation/filesystems/erofs.rst of Linux.
// All numbers are little-endian.
const (
	blockBits = 12
	blockSize = 1 << blockBits
	slotSize  = 32 // unit of inode numbers

	superOffset = 1024
	superSize   = 128
	superMagic  = 0xE0F5E1E2

	compatMTime       = 0x2 // inodes have modification times, not change times
	compatXattrFilter = 0x4

	// rootNID is that of the slot behind the superblock: metadata begins at block 0.
	rootNID = (superOffset + superSize) / slotSize

	compactSize  = 32
	extendedSize = 64

	formatExtended = 1      // bit 0 of i_format
	layoutPlain    = 0 << 1 // data in blocks
	layoutInline   = 2 << 1 // the last, partial block of the data behind the inode

	// noBlock is the address of data that is elsewhere: behind any image, so that reading fails.
	// (All ones would be a hole, and read as zeros.)
	noBlock = math.MaxUint32 - 1

	direntSize = 12
	maxName    = 255
	maxTarget  = blockSize - 1
	maxPath    = blockSize - 1

	typeFile, typeDir, typeSymlink = 1, 2, 7
)

// The extended attributes of a file or directory: a header, and entries with the prefix "trusted." as
// a number.
const (
	xattrHeaderSize = 12
	xattrEntrySize  = 4
	xattrTrusted    = 4

	metacopyName = "overlay.metacopy"
	redirectName = "overlay.redirect"
	opaqueName   = "overlay.opaque"
	opaqueValue  = "y"

	// Bits of the filter of names: XXH32 of the name with this seed plus xattrTrusted, modulo 32.
	// In an inode a set bit means that no such name is there.
	xattrFilterSeed = 0x25BBE08F
	metacopyBit     = 31
	redirectBit     = 17
	opaqueBit       = 20
)

var le = binary.LittleEndian

func align4(n int) int { return (n + 3) &^ 3 }

func blocksOf(n int64) int64 { return (n + blockSize - 1) >> blockBits }

// xattrSize is the size of the attributes of an entry; 0: it has none.
func xattrSize(e *Entry) int {
	switch {
	case e.hasData():
		return redirectSize(e.Redirect)
	case e.isOpaque():
		return xattrHeaderSize + align4(xattrEntrySize+len(opaqueName)+len(opaqueValue))
	}
	return 0
}

// redirectSize is the size of the attributes of a file with this redirect.
func redirectSize(redirect string) int {
	return xattrHeaderSize + align4(xattrEntrySize+len(metacopyName)) +
		align4(xattrEntrySize+len(redirectName)+len(redirect))
}

// putXattrs fills b, xattrSize zeros.
func putXattrs(b []byte, e *Entry) {
	const all uint32 = math.MaxUint32
	switch {
	case e.hasData():
		le.PutUint32(b, all&^(1<<metacopyBit|1<<redirectBit))
		b = b[xattrHeaderSize:]
		putXattr(b, metacopyName, "")
		putXattr(b[align4(xattrEntrySize+len(metacopyName)):], redirectName, e.Redirect)
	case e.isOpaque():
		le.PutUint32(b, all&^(1<<opaqueBit))
		putXattr(b[xattrHeaderSize:], opaqueName, opaqueValue)
	}
}

// hasData reports whether e is a file whose data is elsewhere.
func (e *Entry) hasData() bool { return fileType(e.Mode) == typeFile && e.Size > 0 }

// isOpaque reports whether e is a directory that hides those below it.
func (e *Entry) isOpaque() bool { return fileType(e.Mode) == typeDir && e.Opaque }

func putXattr(b []byte, name, value string) {
	b[0] = byte(len(name))
	b[1] = xattrTrusted
	le.PutUint16(b[2:], uint16(len(value)))
	n := xattrEntrySize + copy(b[xattrEntrySize:], name)
	copy(b[n:], value)
}

// An inode is the common part of both forms of inodes on disk.
type inode struct {
	extended bool
	layout   uint16
	xattrs   int // bytes of attributes behind it
	mode     uint32
	size     int64
	block    uint32
	parent   uint32 // nid of its directory
	uid, gid uint32
	sec      int64 // times are of extended inodes only
	nsec     int
}

// put fills b, zeros of compactSize or extendedSize.
func (i *inode) put(b []byte) {
	format := i.layout
	if i.extended {
		format |= formatExtended
	}
	le.PutUint16(b, format)
	if i.xattrs > 0 {
		le.PutUint16(b[2:], uint16(1+(i.xattrs-xattrHeaderSize)/4))
	}
	le.PutUint16(b[4:], uint16(i.mode))
	le.PutUint32(b[16:], i.block)
	le.PutUint32(b[20:], i.parent)
	if !i.extended {
		le.PutUint16(b[6:], 1) // links
		le.PutUint32(b[8:], uint32(i.size))
		le.PutUint16(b[24:], uint16(i.uid))
		le.PutUint16(b[26:], uint16(i.gid))
		return
	}
	le.PutUint64(b[8:], uint64(i.size))
	le.PutUint32(b[24:], i.uid)
	le.PutUint32(b[28:], i.gid)
	le.PutUint64(b[32:], uint64(i.sec))
	le.PutUint32(b[40:], uint32(i.nsec))
	le.PutUint32(b[44:], 1) // links
}

// putSuper fills b, superSize zeros.
func putSuper(b []byte, o *Options, inodes, blocks int64) {
	le.PutUint32(b, superMagic)
	le.PutUint32(b[8:], compatMTime|compatXattrFilter)
	b[12] = blockBits
	le.PutUint16(b[14:], rootNID)
	le.PutUint64(b[16:], uint64(inodes))
	le.PutUint64(b[24:], uint64(o.Epoch.Unix()))
	le.PutUint32(b[32:], uint32(o.Epoch.Nanosecond()))
	le.PutUint32(b[36:], uint32(blocks))
	copy(b[48:64], o.UUID[:])
}
