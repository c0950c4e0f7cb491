package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The format of bbolt's files, version 2, in the byte order of the machine. A page is a header, a
// table of elements and what those point to, relative to themselves.
const (
	pageHeader = 16 // id 8, kind 2, count 2, overflow 4
	element    = 16 // branch: position 4, key length 4, page 8; leaf: flags, position, key and value length
	bucketHead = 16 // root page 8, sequence 8; of an inline bucket, with root 0, a page follows

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01

	metaBytes    = 64 // magic 4, version 4, page size 4, flags 4, root 16, free list 8, end 8, transaction 8, sum 8
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	noFreelist   = ^uint64(0)
	maxKeyBytes  = 32768
	maxTreeDepth = 64
)

// verifyFile reads all pages that a bbolt file uses and returns an error that wraps errDamaged unless
// bbolt can use it without a panic: it would crash the program in a goroutine of its own where a
// page is not what it should be, and fault where the file is too short. An empty file is good. What is
// in the values is not looked at.
func verifyFile(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil
	}
	v := &verifier{file: file, size: info.Size()}
	m, err := v.meta()
	if err != nil {
		return err
	}
	v.pageSize, v.end = int64(m.pageSize), m.end
	if m.pageSize < 1024 || m.pageSize > 1<<24 || m.pageSize&(m.pageSize-1) != 0 || m.end < 4 ||
		m.end > uint64(v.size/v.pageSize) {
		return v.damage("%d pages of %d bytes in a file of %d", m.end, m.pageSize, v.size)
	}
	v.seen = make([]bool, m.end)
	v.seen[0], v.seen[1] = true, true
	if m.freelist != noFreelist {
		if err := v.freelist(m.freelist); err != nil {
			return err
		}
	}
	return v.tree(m.root, limits{}, 0)
}

// A verifier holds what is known of a file.
type verifier struct {
	file     io.ReaderAt
	size     int64
	pageSize int64
	end      uint64 // one past the last page in use
	seen     []bool // by page: is part of something
}

// limits are the keys that a page may have: the first one is first, and all are below last; nil is
// no limit. bbolt finds a page in the one above by its first key, so that has to be the same in both.
type limits struct{ first, last []byte }

// damage returns an error that says what is wrong.
func (v *verifier) damage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

// A meta is what the last commit left at the start of the file.
type meta struct {
	pageSize                      uint32
	root, freelist, end, sequence uint64
}

// meta returns the newer one of the two that is whole, as bbolt chooses it.
func (v *verifier) meta() (meta, error) {
	first, firstOK, err := v.readMeta(0)
	if err != nil {
		return meta{}, err
	}
	// Where the first is damaged, the size of the pages is not known.
	for shift := range 15 {
		offset := int64(1024) << shift
		if firstOK && offset != int64(first.pageSize) {
			continue
		}
		second, ok, err := v.readMeta(offset)
		if err != nil {
			return meta{}, err
		}
		if ok && int64(second.pageSize) == offset && (!firstOK || second.sequence > first.sequence) {
			return second, nil
		}
	}
	if !firstOK {
		return meta{}, v.damage("it has no valid start")
	}
	return first, nil
}

// readMeta reads the meta page at offset; false means that it is not whole.
func (v *verifier) readMeta(offset int64) (meta, bool, error) {
	page := make([]byte, pageHeader+metaBytes)
	if err := v.read(page, offset); err != nil {
		if errors.Is(err, errDamaged) {
			return meta{}, false, nil
		}
		return meta{}, false, err
	}
	b, n := page[pageHeader:], binary.NativeEndian
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaBytes-8])
	if n.Uint32(b) != metaMagic || n.Uint32(b[4:]) != metaVersion || n.Uint64(b[56:]) != sum.Sum64() {
		return meta{}, false, nil
	}
	return meta{
		pageSize: n.Uint32(b[8:]),
		root:     n.Uint64(b[16:]),
		freelist: n.Uint64(b[32:]),
		end:      n.Uint64(b[40:]),
		sequence: n.Uint64(b[48:]),
	}, true, nil
}

// read fills b from offset; beyond the end of the file is damage, not another error.
func (v *verifier) read(b []byte, offset int64) error {
	if offset+int64(len(b)) > v.size {
		return v.damage("it ends after %d bytes", v.size)
	}
	if _, err := v.file.ReadAt(b, offset); err != nil {
		if errors.Is(err, io.EOF) {
			return v.damage("it became shorter than %d bytes", v.size)
		}
		return err
	}
	return nil
}

// page reads the page of that number with all that it overflows into, which nothing else may be part of.
func (v *verifier) page(id uint64) ([]byte, error) {
	if id >= v.end {
		return nil, v.damage("page %d is beyond the last, %d", id, v.end-1)
	}
	head := make([]byte, pageHeader)
	if err := v.read(head, int64(id)*v.pageSize); err != nil {
		return nil, err
	}
	overflow := uint64(binary.NativeEndian.Uint32(head[12:]))
	if binary.NativeEndian.Uint64(head) != id || overflow >= v.end-id {
		return nil, v.damage("page %d has a wrong header", id)
	}
	for i := id; i <= id+overflow; i++ {
		if v.seen[i] {
			return nil, v.damage("page %d has two uses", i)
		}
		v.seen[i] = true
	}
	b := make([]byte, (int64(overflow)+1)*v.pageSize)
	return b, v.read(b, int64(id)*v.pageSize)
}

// kind and count are fields of a page's header.
func kind(page []byte) uint16 { return binary.NativeEndian.Uint16(page[8:]) }
func count(page []byte) int   { return int(binary.NativeEndian.Uint16(page[10:])) }

// freelist checks the list of free pages, which only a file that was never written to has.
func (v *verifier) freelist(id uint64) error {
	page, err := v.page(id)
	if err != nil {
		return err
	}
	n := count(page)
	if kind(page) != freelistPage || n == 0xffff || pageHeader+8*n > len(page) {
		return v.damage("page %d is no list of free pages", id)
	}
	for i := range n {
		free := binary.NativeEndian.Uint64(page[pageHeader+8*i:])
		if free >= v.end || v.seen[free] {
			return v.damage("page %d is in use, or missing, and listed as free", free)
		}
		v.seen[free] = true
	}
	return nil
}

// tree checks the page of that number and all below it.
func (v *verifier) tree(id uint64, keys limits, depth int) error {
	page, err := v.page(id)
	if err != nil {
		return err
	}
	if depth > maxTreeDepth {
		return v.damage("page %d is %d levels deep", id, depth)
	}
	switch kind(page) {
	case leafPage:
		return v.leaf(page, id, keys, depth)
	case branchPage:
		return v.branch(page, id, keys, depth)
	}
	return v.damage("page %d is of kind %#x", id, kind(page))
}

// branch checks a page of references to others.
func (v *verifier) branch(page []byte, id uint64, keys limits, depth int) error {
	n := count(page)
	if n == 0 || pageHeader+n*element > len(page) {
		return v.damage("page %d has %d references", id, n)
	}
	var names [][]byte
	previous := keys.first
	for i := range n {
		at := pageHeader + i*element
		key, _, err := v.item(page, id, at, binary.NativeEndian.Uint32(page[at:]),
			[2]uint32{binary.NativeEndian.Uint32(page[at+4:])})
		if err != nil {
			return err
		}
		if err := v.inOrder(id, key, limits{previous, keys.last}, i == 0); err != nil {
			return err
		}
		names, previous = append(names, key), key
	}
	for i, name := range names {
		below := limits{name, keys.last}
		if i+1 < n {
			below.last = names[i+1]
		}
		child := binary.NativeEndian.Uint64(page[pageHeader+i*element+8:])
		if err := v.tree(child, below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks a page of values and buckets.
func (v *verifier) leaf(page []byte, id uint64, keys limits, depth int) error {
	n := count(page)
	if pageHeader+n*element > len(page) || n == 0 && keys.first != nil {
		return v.damage("page %d has %d entries", id, n)
	}
	previous := keys.first
	for i := range n {
		at := pageHeader + i*element
		e, order := page[at:], binary.NativeEndian
		key, value, err := v.item(page, id, at, order.Uint32(e[4:]),
			[2]uint32{order.Uint32(e[8:]), order.Uint32(e[12:])})
		if err != nil {
			return err
		}
		if err := v.inOrder(id, key, limits{previous, keys.last}, i == 0); err != nil {
			return err
		}
		previous = key
		switch order.Uint32(e) {
		case 0:
		case bucketFlag:
			if err := v.bucket(value, id, depth+1); err != nil {
				return err
			}
		default:
			return v.damage("page %d has an entry of flags %#x", id, order.Uint32(e))
		}
	}
	return nil
}

// bucket checks what the value of a bucket says.
func (v *verifier) bucket(value []byte, id uint64, depth int) error {
	if len(value) < bucketHead {
		return v.damage("page %d has a bucket of %d bytes", id, len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return v.tree(root, limits{}, depth)
	}
	inline := value[bucketHead:]
	if len(inline) < pageHeader || kind(inline) != leafPage || depth > maxTreeDepth ||
		binary.NativeEndian.Uint64(inline) != 0 || binary.NativeEndian.Uint32(inline[12:]) != 0 {
		return v.damage("page %d has a bucket that is none", id)
	}
	return v.leaf(inline, id, limits{}, depth)
}

// item returns the key and the value that the element at offset at points to, given its position and
// the two lengths.
func (v *verifier) item(page []byte, id uint64, at int, position uint32, lengths [2]uint32) (key, value []byte, err error) {
	start := int64(at) + int64(position)
	middle := start + int64(lengths[0])
	end := middle + int64(lengths[1])
	if lengths[0] > maxKeyBytes || end > int64(len(page)) {
		return nil, nil, v.damage("page %d has an entry that is not on it", id)
	}
	return page[start:middle], page[middle:end], nil
}

// inOrder checks a key against the one before it, or for the first of a page the one it has to be,
// and against the one that all of the page are below.
func (v *verifier) inOrder(id uint64, key []byte, keys limits, first bool) error {
	good := true
	if keys.first != nil {
		order := bytes.Compare(key, keys.first)
		good = order > 0 && !first || order == 0 && first
	}
	if !good || keys.last != nil && bytes.Compare(key, keys.last) >= 0 {
		return v.damage("page %d has its keys in the wrong order", id)
	}
	return nil
}
