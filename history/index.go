package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io"
	"math"
	"os"
	"strings"

	"github.com/forerunner-build/forerunner/proto/names"
)

const (
	// rowBytes is the size of a row of an index.
	rowBytes = 8 + 4 + 1 + 2*8 + 2*4 + 4*int64(fields)
	// textBytes is the size of a text besides its bytes, in an index that grows.
	textBytes = 64
)

// An index has the searchable fields of each record of a segment, in columns. Columns have numbers
// for texts; tables have the texts.
type index struct {
	rows  int
	bytes int64 // size in memory

	ended   []uint64 // milliseconds
	took    []uint32 // milliseconds of the last run
	marks   []uint8
	ops     []uint64 // beginning of the name, as a number
	actions []uint64 // beginning of the hash, as a number
	blocks  []uint32 // the block of the record, and its position there
	items   []uint32
	texts   [fields][]uint32
	tables  [fields][]string
	offsets []uint32 // of the blocks in the file

	// numbers has the number of each text, by the hash of the text; only in an index that grows. It
	// has no pointers, so the garbage collector does not read it.
	numbers [fields]map[uint64]uint32
	// latest are the rows that are not in the columns yet, and latestBytes is the size of their texts.
	// arena has the texts of the tables.
	latest      []entry
	latestBytes int64
	arena       arena
}

// An entry is a row of an index that grows, before it is in the columns. Many go there at once: one
// at a time, each would have to fetch the ends of all columns and tables into the CPU's cache.
type entry struct {
	ended, op, action uint64
	took, block, item uint32
	mark              uint8
	texts             [fields]string
}

// So many entries, or entries with so many bytes of texts, go into the columns at once.
const mostLatest, mostLatestBytes = 128, 64 << 10

func newIndex() *index {
	x := &index{latest: make([]entry, 0, mostLatest)}
	for f := range x.numbers {
		x.numbers[f] = map[uint64]uint32{}
	}
	return x
}

func (x *index) add(r *Row, block, item uint32) {
	op, _ := digits(strings.TrimPrefix(r.Operation, names.OperationPrefix))
	action, _ := digits(r.Action)
	x.latest = append(x.latest, entry{
		ended: uint64(r.Ended), op: op, action: action,
		took: r.took(), block: block, item: item, mark: r.mark(), texts: r.Texts,
	})
	texts := int64(0)
	for f := range r.Texts {
		texts += int64(len(r.Texts[f]))
	}
	x.bytes += rowBytes + texts
	if x.latestBytes += texts; x.latestBytes >= mostLatestBytes || len(x.latest) == mostLatest {
		x.settle()
	}
}

// settle moves the latest rows into the columns.
func (x *index) settle() {
	if len(x.latest) == 0 {
		return // others may read x, which gets no more rows
	}
	for i := range x.latest {
		e := &x.latest[i]
		x.ended, x.took, x.marks = append(x.ended, e.ended), append(x.took, e.took), append(x.marks, e.mark)
		x.ops, x.actions = append(x.ops, e.op), append(x.actions, e.action)
		x.blocks, x.items = append(x.blocks, e.block), append(x.items, e.item)
	}
	for f := range fields {
		for i := range x.latest {
			x.texts[f] = append(x.texts[f], x.numberOf(f, x.latest[i].texts[f]))
		}
	}
	clear(x.latest)
	x.bytes -= x.latestBytes
	x.latest, x.latestBytes = x.latest[:0], 0
}

// hashes is the seed of hashes of texts.
var hashes = maphash.MakeSeed()

// numberOf returns the number of a text, which is often that of the record before it. Of two texts
// with one hash the second has a number for each record.
func (x *index) numberOf(f Field, text string) uint32 {
	if n := len(x.texts[f]); n > 0 {
		if last := x.texts[f][n-1]; x.tables[f][last] == text {
			return last
		}
	}
	hash := maphash.String(hashes, text)
	number, known := x.numbers[f][hash]
	if !known || x.tables[f][number] != text {
		number = uint32(len(x.tables[f]))
		text = x.arena.clone(text)
		x.numbers[f][hash] = number
		x.tables[f] = append(x.tables[f], text)
		x.bytes += textBytes + int64(len(text))
	}
	return number
}

// An arena has the bytes of many texts, in few pieces of memory.
type arena struct{ piece strings.Builder }

// arenaBytes is the size of a piece.
const arenaBytes = 16 << 10

// clone returns a copy of a text.
func (a *arena) clone(text string) string {
	if len(text) > arenaBytes/8 {
		return strings.Clone(text)
	}
	if a.piece.Cap()-a.piece.Len() < len(text) {
		a.piece.Reset()
		a.piece.Grow(arenaBytes)
	}
	begin := a.piece.Len()
	a.piece.WriteString(text)
	return a.piece.String()[begin:]
}

// snapshot returns a copy of the index that does not change when x grows.
func (x *index) snapshot() *index {
	x.settle()
	return &index{
		rows: len(x.ended), bytes: x.bytes,
		ended: x.ended, took: x.took, marks: x.marks, ops: x.ops, actions: x.actions,
		blocks: x.blocks, items: x.items, texts: x.texts, tables: x.tables, offsets: x.offsets,
	}
}

// cut removes all rows from a number on. Snapshots keep them.
func (x *index) cut(rows int) {
	x.settle()
	x.ended, x.took, x.marks = x.ended[:rows:rows], x.took[:rows:rows], x.marks[:rows:rows]
	x.ops, x.actions = x.ops[:rows:rows], x.actions[:rows:rows]
	x.blocks, x.items = x.blocks[:rows:rows], x.items[:rows:rows]
	for f := range x.texts {
		x.texts[f] = x.texts[f][:rows:rows]
	}
}

// A section is one column of an index in its file.
type section int

// The sections, in the order of the file.
const (
	endedSection section = iota
	tookSection
	marksSection
	opsSection
	actionsSection
	blocksSection
	itemsSection
	offsetsSection
	textSections
	tableSections = textSections + section(fields)
	sections      = tableSections + section(fields)
)

func (x *index) encode(s section) []byte {
	switch s {
	case endedSection:
		return encode64(x.ended)
	case tookSection:
		return encode32(x.took)
	case marksSection:
		return x.marks
	case opsSection:
		return encode64(x.ops)
	case actionsSection:
		return encode64(x.actions)
	case blocksSection:
		return encode32(x.blocks)
	case itemsSection:
		return encode32(x.items)
	case offsetsSection:
		return encode32(x.offsets)
	}
	if s < tableSections {
		return encode32(x.texts[s-textSections])
	}
	return encodeTable(x.tables[s-tableSections])
}

// decode reads one section. Anything that encode does not write is an error.
func (x *index) decode(s section, b []byte) (err error) {
	n := x.rows
	switch s {
	case endedSection:
		x.ended, err = decode64(b, n)
	case tookSection:
		x.took, err = decode32(b, n)
	case marksSection:
		if x.marks = b; len(b) != n {
			err = errDamaged
		}
	case opsSection:
		x.ops, err = decode64(b, n)
	case actionsSection:
		x.actions, err = decode64(b, n)
	case blocksSection:
		x.blocks, err = decode32(b, n)
	case itemsSection:
		x.items, err = decode32(b, n)
	case offsetsSection:
		x.offsets, err = decode32(b, len(b)/4)
	default:
		if s < tableSections {
			x.texts[s-textSections], err = decode32(b, n)
		} else {
			x.tables[s-tableSections], err = decodeTable(b)
		}
	}
	return err
}

func encode64(list []uint64) []byte {
	b := make([]byte, 0, 8*len(list))
	for _, v := range list {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func encode32(list []uint32) []byte {
	b := make([]byte, 0, 4*len(list))
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func encodeTable(list []string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(list)))
	for _, s := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	}
	for _, s := range list {
		b = append(b, s...)
	}
	return b
}

func decode64(b []byte, n int) ([]uint64, error) {
	if len(b) != 8*n {
		return nil, errDamaged
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return list, nil
}

func decode32(b []byte, n int) ([]uint32, error) {
	if len(b) != 4*n {
		return nil, errDamaged
	}
	list := make([]uint32, n)
	for i := range list {
		list[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return list, nil
}

func decodeTable(b []byte) ([]string, error) {
	if len(b) < 4 {
		return nil, errDamaged
	}
	n := int(binary.LittleEndian.Uint32(b))
	if n > (len(b)-4)/4 {
		return nil, errDamaged
	}
	lengths, text := b[4:4+4*n], string(b[4+4*n:])
	list := make([]string, n)
	for i := range list {
		size := int(binary.LittleEndian.Uint32(lengths[4*i:]))
		if size > len(text) {
			return nil, errDamaged
		}
		list[i], text = text[:size], text[size:]
	}
	return list, nil
}

const (
	indexMagic = "forerunner history index 1\n"
	// The header follows the magic: rows, first and last; then the offset, length and checksum of
	// each section; at the end a checksum of the header.
	sectionHeader = 8 + 8 + 4
	indexHeader   = 4 + 8 + 8 + int(sections)*sectionHeader + 4
)

// writeIndex writes the settled index of a segment atomically, and returns its size.
func writeIndex(segment string, x *index) (size int64, err error) {
	path := indexPath(segment)
	file, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err == nil {
			err = os.Rename(path+".tmp", path)
		}
		if err != nil { // a full disk needs the room
			err = errors.Join(err, os.Remove(path+".tmp"))
		}
	}()
	b := make([]byte, len(indexMagic)+indexHeader)
	at := copy(b, indexMagic)
	size = int64(len(b))
	first, last := int64(math.MaxInt64), int64(0)
	for _, ended := range x.ended {
		first, last = min(first, int64(ended)), max(last, int64(ended))
	}
	binary.LittleEndian.PutUint32(b[at:], uint32(len(x.ended)))
	binary.LittleEndian.PutUint64(b[at+4:], uint64(first))
	binary.LittleEndian.PutUint64(b[at+12:], uint64(last))
	at += 20
	for s := range sections {
		column := x.encode(s)
		binary.LittleEndian.PutUint64(b[at:], uint64(size))
		binary.LittleEndian.PutUint64(b[at+8:], uint64(len(column)))
		binary.LittleEndian.PutUint32(b[at+16:], crc32.Checksum(column, castagnoli))
		at += sectionHeader
		if _, err := file.WriteAt(column, size); err != nil {
			return 0, err
		}
		size += int64(len(column))
	}
	binary.LittleEndian.PutUint32(b[at:], crc32.Checksum(b[:at], castagnoli))
	_, err = file.WriteAt(b, 0)
	return size, err
}

// openIndex reads the header of an index, and returns it with its size.
func openIndex(segment string) (*indexFile, int64, error) {
	file, err := os.Open(indexPath(segment))
	if err != nil {
		return nil, 0, err
	}
	header := make([]byte, len(indexMagic)+indexHeader)
	info, err := file.Stat()
	if err == nil {
		_, err = file.ReadAt(header, 0)
	}
	sum := len(header) - 4
	if err == nil && (string(header[:len(indexMagic)]) != indexMagic ||
		crc32.Checksum(header[:sum], castagnoli) != binary.LittleEndian.Uint32(header[sum:])) {
		err = errDamaged
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	rest := header[len(indexMagic):]
	x := &indexFile{
		index: index{rows: int(binary.LittleEndian.Uint32(rest))}, file: file, size: info.Size(), header: rest[20:],
		first: int64(binary.LittleEndian.Uint64(rest[4:])), last: int64(binary.LittleEndian.Uint64(rest[12:])),
	}
	return x, info.Size(), nil
}

// An indexFile is an index whose sections are read on demand.
type indexFile struct {
	index
	file   *os.File
	size   int64
	header []byte
	has    [sections]bool
	// first and last are the ends of the first and last operation, in milliseconds.
	first, last int64
}

// wholeIndex is an index that was read.
func wholeIndex(of *index) *indexFile {
	x := &indexFile{index: *of.snapshot()}
	for i := range x.has {
		x.has[i] = true
	}
	return x
}

// open returns the bytes of a section, their number and their checksum.
func (x *indexFile) open(s section) (from *io.SectionReader, size int64, sum uint32, err error) {
	h := x.header[int(s)*sectionHeader:]
	offset, size := int64(binary.LittleEndian.Uint64(h)), int64(binary.LittleEndian.Uint64(h[8:]))
	if offset < 0 || size < 0 || offset > x.size || size > x.size-offset {
		return nil, 0, 0, errDamaged
	}
	return io.NewSectionReader(x.file, offset, size), size, binary.LittleEndian.Uint32(h[16:]), nil
}

// check reads all sections. It keeps none.
func (x *indexFile) check() error {
	for s := range sections {
		from, _, want, err := x.open(s)
		if err != nil {
			return err
		}
		sum := crc32.New(castagnoli)
		if _, err := io.Copy(sum, from); err != nil {
			return err
		}
		if sum.Sum32() != want {
			return fmt.Errorf("section %d: %w", s, errDamaged)
		}
	}
	return nil
}

// need reads the sections that have not been read yet.
func (x *indexFile) need(list ...section) error {
	for _, s := range list {
		if x.has[s] {
			continue
		}
		from, size, want, err := x.open(s)
		if err != nil {
			return err
		}
		b := make([]byte, size)
		if _, err := io.ReadFull(from, b); err != nil {
			return err
		}
		if crc32.Checksum(b, castagnoli) != want {
			return fmt.Errorf("section %d: %w", s, errDamaged)
		}
		if err := x.decode(s, b); err != nil {
			return err
		}
		x.has[s] = true
	}
	return nil
}
