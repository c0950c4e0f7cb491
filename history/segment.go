package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

const (
	segmentSuffix, indexSuffix = ".records", ".index"
	// lostBlock is the offset of a block that could not be written.
	lostBlock = ^uint32(0)
)

var (
	errDamaged = errors.New("block is damaged")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// A segment has consecutive records in the order in which their operations ended.
type segment struct {
	number uint32
	path   string // empty: in memory
	format format
	// index is nil for a segment that is sealed in its files.
	index *index
	// pending are the blocks that are not written yet. The last one still grows. The first one has
	// the number written.
	pending [][]byte
	written int
	// file is open while records may be added.
	file *os.File
	data []byte // content of a segment in memory
	// size is the size of the file, indexSize the size of the index's file, raw the uncompressed
	// size of all records.
	size, indexSize, raw int64
	rows                 int
	// first and last are the ends of the first and last operation, in milliseconds.
	first, last int64
	sealed      bool
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

// add adds an encoded record, which must have four free bytes in front. The caller must have
// checked hasRoom. It reports whether the block is full.
func (g *segment) add(r *historypb.Record, encoded []byte) (full bool) {
	n := len(g.pending)
	block := &g.pending[n-1]
	g.note(r, uint32(g.written+n-1), uint32(len(*block)))
	binary.LittleEndian.PutUint32(encoded, uint32(len(encoded)-4))
	*block = append(*block, encoded...)
	g.raw += int64(len(encoded))
	return len(*block) >= blockBytes
}

// note adds a record to the index: it is in a block, at the byte item.
func (g *segment) note(r *historypb.Record, block, item uint32) {
	g.index.add(r, block, item)
	ended := int64(g.index.ended[g.rows])
	if g.rows == 0 {
		g.first, g.last = ended, ended
	}
	g.first, g.last = min(g.first, ended), max(g.last, ended)
	g.rows++
}

// write writes the full blocks or, with all, all blocks. It seals the segments that get no more
// records.
func (s *Store) write(all bool) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	var todo []*segment
	for i, g := range s.segments {
		if len(g.pending) > 0 || g.index != nil && g.path != "" && i < len(s.segments)-1 {
			todo = append(todo, g)
		}
	}
	last := len(s.segments) - 1
	var current *segment
	if last >= 0 {
		current = s.segments[last]
	}
	s.mu.Unlock()
	for _, g := range todo {
		s.writeBlocks(g, all || g != current)
		if g != current && g.path != "" {
			if err := s.seal(g); err != nil {
				s.failed(g, err)
			}
		}
	}
}

// writeBlocks writes the blocks of a segment. It writes the last one, which may still grow, only
// with all.
func (s *Store) writeBlocks(g *segment, all bool) {
	var err error
	wrote := false
	for err == nil {
		s.mu.Lock()
		n := len(g.pending)
		if n == 0 || n == 1 && !all && len(g.pending[0]) < blockBytes {
			s.mu.Unlock()
			break
		}
		raw := g.pending[0]
		if n == 1 { // the next record begins a new block
			g.pending = append(g.pending, s.blockLocked())
		}
		s.mu.Unlock()
		var offset uint32
		offset, err = s.writeBlock(g, raw)
		wrote = true
		s.mu.Lock()
		g.index.offsets = append(g.index.offsets, offset)
		g.pending = g.pending[1:]
		s.freeLocked(raw)
		if len(g.pending) == 1 && len(g.pending[0]) == 0 {
			s.freeLocked(g.pending[0])
			g.pending = nil
		}
		g.written++
		s.pending -= int64(len(raw))
		s.mu.Unlock()
	}
	if err == nil && wrote && all && g.file != nil {
		err = g.file.Sync()
	}
	if err != nil || wrote {
		s.failed(g, err)
	}
}

// blockLocked returns memory for a block.
func (s *Store) blockLocked() []byte {
	if n := len(s.free); n > 0 {
		block := s.free[n-1]
		s.free = s.free[:n-1]
		return block
	}
	return make([]byte, 0, blockBytes+blockBytes/4)
}

// freeLocked keeps the memory of a block for reuse. Nothing may read the block any more.
func (s *Store) freeLocked(block []byte) {
	if len(s.free) < mostFree {
		s.free = append(s.free, block[:0])
	}
}

// writeBlock writes a block and returns its offset. A block that cannot be written is lost.
func (s *Store) writeBlock(g *segment, raw []byte) (uint32, error) {
	block := packed(raw, &s.packed)
	offset := g.size
	if g.path == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		if g.data == nil {
			g.data = make([]byte, len(magic), 1<<20)
		}
		g.data = append(g.data, block...)
		g.size += int64(len(block))
		return uint32(offset), nil
	}
	var err error
	if g.file == nil {
		if g.file, err = os.OpenFile(g.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err == nil {
			_, err = g.file.WriteAt([]byte(magic), 0)
		}
	}
	if err == nil {
		_, err = g.file.WriteAt(block, offset)
	}
	if err != nil {
		return lostBlock, err
	}
	s.mu.Lock()
	g.size += int64(len(block))
	s.mu.Unlock()
	return uint32(offset), nil
}

// failed logs the first of several failures, and the end of failures.
func (s *Store) failed(g *segment, err error) {
	s.mu.Lock()
	before := s.failing
	s.failing = err != nil
	if err != nil {
		s.lost++
	}
	s.mu.Unlock()
	switch {
	case err != nil && !before:
		s.options.Logger.Warn("records of completed operations are lost: they cannot be written", zap.String("file", g.path), zap.Error(err))
	case err == nil && before:
		s.options.Logger.Info("records of completed operations are written again", zap.String("file", g.path))
	}
}

// seal writes the index of a segment that gets no more records, and frees the memory of its
// content.
func (s *Store) seal(g *segment) error {
	if g.sealed {
		return nil
	}
	var errs []error
	if g.file != nil {
		errs = append(errs, g.file.Sync(), g.file.Close())
	}
	size, err := writeIndex(g.path, g.index)
	s.mu.Lock()
	defer s.mu.Unlock()
	g.file, g.sealed = nil, true
	if err == nil {
		g.index, g.indexSize = nil, size
	}
	return errors.Join(append(errs, err)...)
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
	number, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), segmentSuffix), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%s is not the name of a segment", path)
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
	g := &segment{number: uint32(number), path: path, size: info.Size(), sealed: true}
	begin := make([]byte, len(magic))
	if n, err := file.ReadAt(begin, 0); n < len(magic) && errors.Is(err, io.EOF) && isBeginOfMagic(string(begin[:n])) {
		return g, os.Remove(path) // the crash came before the first record
	} else if err != nil {
		return nil, err
	}
	if g.format = format(slices.Index(magics[:], string(begin))); g.format < 0 {
		return nil, fmt.Errorf("%s has %w: start the version that wrote it, or move %s away", path, ErrFormat, filepath.Dir(path))
	}
	x, size, err := openIndex(path)
	if err == nil {
		g.rows, g.first, g.last, g.indexSize = x.rows, x.first, x.last, size
		return g, x.file.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.options.Logger.Warn("an index of records is damaged and was rebuilt", zap.String("file", indexPath(path)), zap.Error(err))
	}
	rebuilt := s.rebuild(g, file)
	if rebuilt.size < info.Size() {
		s.options.Logger.Warn("the end of a file of records is damaged, as after a crash, and was truncated", zap.String("file", path),
			zap.Int64("bytes", info.Size()-rebuilt.size))
		if err := file.Truncate(rebuilt.size); err != nil {
			return nil, err
		}
	}
	g.size, g.rows, g.first, g.last = rebuilt.size, rebuilt.rows, rebuilt.first, rebuilt.last
	g.indexSize, err = writeIndex(path, rebuilt.index)
	return g, err
}

// isBeginOfMagic reports whether a file that ends so early is one of ours.
func isBeginOfMagic(s string) bool {
	return slices.ContainsFunc(magics[:], func(magic string) bool { return strings.HasPrefix(magic, s) })
}

// rebuild reads all blocks up to the first that is damaged.
func (s *Store) rebuild(g *segment, file io.ReaderAt) *segment {
	again := &segment{index: newIndex(), size: int64(len(magic))}
	for {
		raw, next, err := s.readBlock(file, g.format, again.size)
		if err != nil {
			return again
		}
		block := uint32(len(again.index.offsets))
		for at := 0; at < len(raw); {
			r := &historypb.Record{}
			encoded, ok := itemAt(raw, at)
			if !ok || proto.Unmarshal(encoded, r) != nil {
				return again // the block was written like this: the rest is useless
			}
			again.note(r, block, uint32(at))
			at += 4 + len(encoded)
		}
		again.index.offsets = append(again.index.offsets, uint32(again.size))
		again.size = next
	}
}

// itemAt returns the encoded record at a place of a block.
func itemAt(raw []byte, at int) ([]byte, bool) {
	if at < 0 || at+4 > len(raw) {
		return nil, false
	}
	n := int(binary.LittleEndian.Uint32(raw[at:]))
	if n > len(raw)-at-4 {
		return nil, false
	}
	return raw[at+4 : at+4+n], true
}
