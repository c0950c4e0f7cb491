package history

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// A format is how the blocks of a segment are compressed. Its magic begins the file. A new one is
// added when older programs cannot read what is written.
type format int

const (
	// zstdFormat is read, and no longer written: its files are a fifth smaller, and a record costs
	// four times as much CPU.
	zstdFormat format = iota
	s2Format
	formats
)

// magics all have the same length.
var magics = [formats]string{zstdFormat: "forerunner history 1\n", s2Format: magic}

const (
	// magic begins each file that is written.
	magic = "forerunner history 2\n"
	// blockHeader has the length and the checksum of a compressed block.
	blockHeader = 8
	// maxBlockBytes bounds what is read as one block, and its records.
	maxBlockBytes = 1 << 20
)

// newDecoder returns a decoder of zstdFormat.
func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxBlockBytes))
}

// packed returns the block of records as it is in a file, in a memory that may be replaced by a
// larger one.
func packed(raw []byte, memory *[]byte) []byte {
	block := slices.Grow((*memory)[:0], blockHeader+s2.MaxEncodedLen(len(raw)))[:blockHeader]
	compressed := s2.Encode(block[blockHeader:cap(block)], raw)
	block = block[:blockHeader+len(compressed)]
	binary.LittleEndian.PutUint32(block, uint32(len(compressed)))
	binary.LittleEndian.PutUint32(block[4:], crc32.Checksum(compressed, castagnoli))
	*memory = block
	return block
}

// packedBytes is what one record takes if it is compressed alone.
func packedBytes(encoded []byte) int64 { return int64(len(s2.Encode(nil, encoded))) }

// readBlock returns the records of the block at an offset, and where the next one begins. That is
// known of a damaged block, too, unless it is 0.
func (s *Store) readBlock(file io.ReaderAt, f format, offset int64) (raw []byte, next int64, err error) {
	var header [blockHeader]byte
	if _, err := file.ReadAt(header[:], offset); err != nil {
		return nil, 0, err
	}
	n := binary.LittleEndian.Uint32(header[:])
	if n == 0 || n > maxBlockBytes {
		return nil, 0, errDamaged
	}
	next = offset + blockHeader + int64(n)
	block := make([]byte, n)
	if _, err := file.ReadAt(block, offset+blockHeader); err != nil {
		return nil, 0, err
	}
	if crc32.Checksum(block, castagnoli) != binary.LittleEndian.Uint32(header[4:]) {
		return nil, next, errDamaged
	}
	raw, err = s.unpack(block, f)
	return raw, next, err
}

// unpack undoes the compression of a block.
func (s *Store) unpack(block []byte, f format) ([]byte, error) {
	if f == zstdFormat {
		return s.decoder.DecodeAll(block, nil)
	}
	if n, err := s2.DecodedLen(block); err != nil || n > maxBlockBytes {
		return nil, errDamaged
	}
	return s2.Decode(nil, block)
}
