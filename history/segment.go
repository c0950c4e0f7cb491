package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
)

const (
	segmentSuffix, indexSuffix = ".records", ".index"
	// lostBlock is the offset of a block that is not there.
	lostBlock = ^uint32(0)
)

var (
	errDamaged = errors.New("block is damaged")
	errGivenUp = errors.New("block was never written")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// A segment has consecutive records in the order in which their operations ended.
type segment struct {
	number uint32
	path   string // empty: in memory
	format format
	// index is nil if it is in its file.
	index *index
	// pending are the blocks that are not written yet. The last one still grows. The first one has
	// the number written.
	pending [][]byte
	written int
	// file is open while records may be added. It has blocks that are not synced yet if isUnsynced.
	file       file
	isUnsynced bool
	data       []byte // content of a segment in memory
	// size is the size of the file, indexSize the size of the index's file, raw the uncompressed
	// size of all records.
	size, indexSize, raw int64
	rows                 int
	// first and last are the ends of the first and last operation, in milliseconds.
	first, last int64
	// sealed: it gets no more records. It has an index in memory until that is in its file.
	sealed bool
	// isChecked: the index's file is not damaged. isDamaged: some records cannot be read, which was
	// logged. A segment of which nothing can be read has no rows.
	isChecked, isDamaged bool
}

func newSegment(folder string, number uint32) *segment {
	g := &segment{number: number, format: s2Format, index: newIndex(), size: int64(len(magic))}
	if folder != "" {
		g.path = filepath.Join(folder, fmt.Sprintf("%08d%s", number, segmentSuffix))
	}
	return g
}

// open reports whether records may be added.
func (g *segment) open() bool { return g.index != nil && !g.sealed }

// bytes returns the size of the segment on the disk or in memory.
func (g *segment) bytes() int64 {
	n := g.size + g.indexSize
	if g.index != nil {
		n += g.index.bytes
	}
	return n
}

// hasRoom reports whether a record can be added to the last block.
func (g *segment) hasRoom() bool {
	n := len(g.pending)
	return n > 0 && len(g.pending[n-1]) < blockBytes
}

// add adds an encoded record, which must have FreeBytes in front. The caller must have
// checked hasRoom. It reports whether the block is full.
func (g *segment) add(r *Row, encoded []byte) (full bool) {
	n := len(g.pending)
	block := &g.pending[n-1]
	g.note(r, uint32(g.written+n-1), uint32(len(*block)))
	binary.LittleEndian.PutUint32(encoded, uint32(len(encoded)-FreeBytes))
	*block = append(*block, encoded...)
	g.raw += int64(len(encoded))
	return len(*block) >= blockBytes
}

// note adds a record to the index: it is in a block, at the byte item.
func (g *segment) note(r *Row, block, item uint32) {
	g.index.add(r, block, item)
	if g.rows == 0 {
		g.first, g.last = r.Ended, r.Ended
	}
	g.first, g.last = min(g.first, r.Ended), max(g.last, r.Ended)
	g.rows++
}

func (g *segment) remove() error {
	if g.path == "" {
		return nil
	}
	if g.file != nil {
		_ = g.file.Close()
	}
	return errors.Join(os.Remove(g.path), os.Remove(indexPath(g.path)))
}

func indexPath(segment string) string {
	return strings.TrimSuffix(segment, segmentSuffix) + indexSuffix
}

// openSegment opens a segment. If it has no index, as after a crash, openSegment reads all records
// and truncates a damaged end.
func (s *Store) openSegment(path string) (*segment, error) {
	number, err := numberIn(path)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	g := &segment{number: number, path: path, size: info.Size(), sealed: true}
	begin := make([]byte, len(magic))
	if n, err := file.ReadAt(begin, 0); n < len(magic) && errors.Is(err, io.EOF) && isBeginOfMagic(string(begin[:n])) {
		return g, os.Remove(path) // the crash came before the first record
	} else if err != nil {
		return nil, err
	}
	if g.format = format(slices.Index(magics[:], string(begin))); g.format < 0 {
		if err := s.findFormat(g, file, string(begin)); err != nil {
			return nil, err
		}
	}
	x, size, err := openIndex(path)
	if err == nil {
		g.rows, g.first, g.last, g.indexSize = x.rows, x.first, x.last, size
		return g, x.file.Close()
	}
	s.tellIndex(g, err)
	rebuilt := s.rebuild(g, file)
	if rebuilt.size < info.Size() {
		s.options.Logger.Warn("the end of a file of records is damaged, as after a crash, and was truncated", zap.String("file", path),
			zap.Int64("bytes", info.Size()-rebuilt.size))
		if err := file.Truncate(rebuilt.size); err != nil {
			return nil, err
		}
	}
	g.size = rebuilt.size
	s.use(g, rebuilt)
	return g, nil
}

// numberIn returns the number of the segment in a file.
func numberIn(path string) (uint32, error) {
	number, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), segmentSuffix), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s is not the name of a segment", path)
	}
	return uint32(number), nil
}

// isBeginOfMagic reports whether a file that ends so early is one of ours.
func isBeginOfMagic(s string) bool {
	return slices.ContainsFunc(magics[:], func(magic string) bool { return strings.HasPrefix(magic, s) })
}

// itemAt returns the encoded record at a place of a block.
func itemAt(raw []byte, at int) ([]byte, bool) {
	if at < 0 || at+FreeBytes > len(raw) {
		return nil, false
	}
	n := int(binary.LittleEndian.Uint32(raw[at:]))
	if n > len(raw)-at-FreeBytes {
		return nil, false
	}
	return raw[at+FreeBytes : at+FreeBytes+n], true
}
