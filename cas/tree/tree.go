package tree

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// ErrInvalid is wrapped by every error about a message that is no Directory, that
// REv2 does not allow, or that no file system can show.
var ErrInvalid = errors.New("invalid directory")

// Errors of trees that are valid, but too large to show or return, wrap ErrTooLarge.
var ErrTooLarge = errors.New("more than there is memory for")

// An index word has the kind of an entry in its two highest bits and the offset of its message's
// length in the others.
const (
	kindShift  = 30
	offsetMask = 1<<kindShift - 1
)

// A Directory is a valid Directory message. It never changes, and its methods may
// be called concurrently.
type Directory struct {
	fn      digest.Function
	late    bool // a node has a name that is not its first field
	encoded []byte
	index   []uint32 // in the order of names
}

// MaxBytes limits the size of a Directory: about a million entries.
const MaxBytes = 128 << 20

// Parse returns the Directory that is encoded in b, with digests of the function fn. It keeps b,
// which the caller must not change any more.
//
// Every name is one path component of 1 to 255 bytes other than "." and ".."; names are sorted by
// bytes in each of the three lists and occur once in all of them together (REv2, "Directory");
// every digest is well-formed; every symlink has a target of at most 4,095 bytes without a NUL.
// Names and targets need not be UTF-8. Errors wrap ErrInvalid and quote the offending name. It
// takes time linear in len(b), which must be below 1 GiB.
func Parse(fn digest.Function, b []byte) (*Directory, error) {
	if len(b) > offsetMask {
		return nil, fmt.Errorf("%w: it has %d bytes, the most is %d", ErrInvalid, len(b), offsetMask)
	}
	p := parser{fn: fn, encoded: b}
	if err := p.count(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	index, err := p.merge()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return &Directory{fn: fn, late: p.late, encoded: b, index: index}, nil
}

// Len returns the number of entries.
func (d *Directory) Len() int { return len(d.index) }

// At returns entry i, from 0 to Len()-1, in the order of the names' bytes. It
// does not allocate.
func (d *Directory) At(i int) Entry {
	kind := d.Kind(i)
	var n node
	_ = n.decode(kind, message(d.encoded, d.index[i])) // Parse did it before
	return n.entry(d.fn, kind)
}

// Kind returns the kind of entry i, without reading it.
func (d *Directory) Kind(i int) Kind { return Kind(d.index[i] >> kindShift) }

// Name returns the name of entry i, at a fraction of the cost of At.
func (d *Directory) Name(i int) string { return text(d.name(i)) }

func (d *Directory) name(i int) []byte { return nameOf(message(d.encoded, d.index[i]), d.late) }

// Find returns the entry with that name. It does not allocate.
func (d *Directory) Find(name string) (Entry, bool) {
	i, ok := d.Search(name)
	if !ok {
		return Entry{}, false
	}
	return d.At(i), true
}

// Search returns the index of the entry with that name.
func (d *Directory) Search(name string) (i int, ok bool) {
	return sort.Find(len(d.index), func(i int) int { return compare(name, d.name(i)) })
}

// Encoded returns the message that was given to Parse. The caller must not change it.
func (d *Directory) Encoded() []byte { return d.encoded }

// Function returns the function of the directory's digests.
func (d *Directory) Function() digest.Function { return d.fn }

// Bytes returns how much memory the directory holds.
func (d *Directory) Bytes() int {
	return int(unsafe.Sizeof(*d)) + cap(d.encoded) + cap(d.index)*int(unsafe.Sizeof(d.index[0]))
}

// message returns the encoded node that an index word leads to.
func message(encoded []byte, word uint32) []byte {
	b, _ := protowire.ConsumeBytes(encoded[word&offsetMask:])
	return b
}

func compare(a string, b []byte) int {
	return bytes.Compare(unsafe.Slice(unsafe.StringData(a), len(a)), b)
}
