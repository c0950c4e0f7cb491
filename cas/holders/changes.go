package holders

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// Heading begins a file of changes; it changes with the format.
const Heading = "FwHD2\n"

// A file has blocks after its Heading. A block is the number of bytes of its records, a CRC-32C of
// them, and the records, in little endian. These show an incomplete block after a crash.
//
//	name    1, its number, its 32 bytes
//	gained  2, the blob, the number of a name
//	lost    3, the blob
//
// A blob is its digest function, the hash and the size, in eight bytes. A number has four.
const (
	recordName   = 1
	recordGained = 2
	recordLost   = 3

	blobBytes   = 1 + digest.HashSize + 8
	nameBytes   = 1 + 4 + sha256.Size
	gainedBytes = 1 + blobBytes + 4
	lostBytes   = 1 + blobBytes
	blockHeader = 8
	// maxBlock limits the size of a block for Read.
	maxBlock = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Changes are changes of blobs' holders that are not written yet, in order. The zero Changes are
// none. They must not be used concurrently.
type Changes struct {
	numbers map[Name]uint32 // of names that the file has, or will have
	next    uint32
	records []byte
}

// Gained records that n has d from now on.
func (c *Changes) Gained(d digest.Digest, n Name) {
	number, ok := c.numbers[n]
	if !ok {
		if c.numbers == nil {
			c.numbers = map[Name]uint32{}
		}
		number = c.next
		c.next++
		c.numbers[n] = number
		c.records = append(binary.LittleEndian.AppendUint32(append(c.records, recordName), number), n[:]...)
	}
	c.records = binary.LittleEndian.AppendUint32(appendBlob(append(c.records, recordGained), d), number)
}

// Lost records that no name has d any more.
func (c *Changes) Lost(d digest.Digest) { c.records = appendBlob(append(c.records, recordLost), d) }

// Restart drops unwritten changes, and forgets the names in the file. It is called before a new
// file, and when a block was not written to the old one.
func (c *Changes) Restart() { c.numbers, c.records = nil, nil }

// Take returns the changes since its last call as a block, for the end of the file; nil if there
// are none.
func (c *Changes) Take() []byte {
	if len(c.records) == 0 {
		return nil
	}
	b := make([]byte, 0, blockHeader+len(c.records))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(c.records)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(c.records, castagnoli))
	b = append(b, c.records...)
	c.records = c.records[:0]
	return b
}

func appendBlob(b []byte, d digest.Digest) []byte {
	b = d.AppendHash(append(b, byte(d.Function())))
	return binary.LittleEndian.AppendUint64(b, uint64(d.SizeBytes()))
}

func parseBlob(b []byte) (digest.Digest, error) {
	size := int64(binary.LittleEndian.Uint64(b[1+digest.HashSize:]))
	return digest.FromHash(digest.Function(b[0]), [digest.HashSize]byte(b[1:1+digest.HashSize]), size)
}

// Read yields the changes in a file, in their order, up to its end or to damage: each holder that
// gained a blob, and each blob that was lost. Changes after damage are lost; the holders upload
// these blobs again. The error is one of reading.
func Read(r io.Reader, gained func(digest.Digest, Name), lost func(digest.Digest)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	heading := make([]byte, len(Heading))
	if _, err := io.ReadFull(in, heading); err != nil || string(heading) != Heading {
		return orEnd(err)
	}
	names := map[uint32]Name{}
	var block []byte
	for {
		var header [blockHeader]byte
		if _, err := io.ReadFull(in, header[:]); err != nil {
			return orEnd(err)
		}
		size := binary.LittleEndian.Uint32(header[:])
		if size > maxBlock {
			return nil
		}
		if uint32(cap(block)) < size {
			block = make([]byte, size)
		}
		block = block[:size]
		if _, err := io.ReadFull(in, block); err != nil {
			return orEnd(err)
		}
		if crc32.Checksum(block, castagnoli) != binary.LittleEndian.Uint32(header[4:]) || !tell(block, names, gained, lost) {
			return nil
		}
	}
}

// orEnd returns nil for the errors of reading a file that ends, even if it ends too early.
func orEnd(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// tell yields the changes in a block. It is false if the block is invalid.
func tell(b []byte, names map[uint32]Name, gained func(digest.Digest, Name), lost func(digest.Digest)) bool {
	for len(b) > 0 {
		switch {
		case b[0] == recordName && len(b) >= nameBytes:
			names[binary.LittleEndian.Uint32(b[1:])] = Name(b[5:nameBytes])
			b = b[nameBytes:]
		case b[0] == recordGained && len(b) >= gainedBytes:
			d, err := parseBlob(b[1:])
			if err != nil {
				return false
			}
			if n, ok := names[binary.LittleEndian.Uint32(b[1+blobBytes:])]; ok {
				gained(d, n)
			}
			b = b[gainedBytes:]
		case b[0] == recordLost && len(b) >= lostBytes:
			d, err := parseBlob(b[1:])
			if err != nil {
				return false
			}
			lost(d)
			b = b[lostBytes:]
		default:
			return false
		}
	}
	return true
}
