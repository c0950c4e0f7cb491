package tree

import (
	"errors"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// text returns b as a string without a copy. The bytes belong to a message that must not change
// (see Parse).
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// errWire is about bytes that are no protobuf message of any type.
var errWire = errors.New("it cannot be decoded")

// A cursor iterates over the fields of an encoded message. After next has returned true, num and
// typ describe a field, and its value is in bytes or varint, depending on typ. A field with another
// type than its message declares counts as unknown.
type cursor struct {
	rest   []byte
	num    protowire.Number
	typ    protowire.Type
	bytes  []byte
	varint uint64
	err    error // why next returned false; nil at the end of the message
}

func (c *cursor) next() bool {
	if len(c.rest) == 0 {
		return false
	}
	if c.nextShort() {
		return true
	}
	num, typ, n := protowire.ConsumeTag(c.rest)
	if n < 0 || num > protowire.MaxValidNumber {
		return c.fail()
	}
	c.num, c.typ, c.rest = num, typ, c.rest[n:]
	switch typ {
	case protowire.VarintType:
		c.varint, n = protowire.ConsumeVarint(c.rest)
	case protowire.BytesType:
		c.bytes, n = protowire.ConsumeBytes(c.rest)
	default:
		n = protowire.ConsumeFieldValue(num, typ, c.rest)
	}
	if n < 0 {
		return c.fail()
	}
	c.rest = c.rest[n:]
	return true
}

// nextShort is next of a field whose number, and length or value, are a byte each, as those of nearly
// all fields are. False: it is another one.
func (c *cursor) nextShort() bool {
	const leastTag, varint, tagBits = 1 << 3, 0x80, 3
	b := c.rest
	if len(b) < 2 || b[0] < leastTag || b[0] >= varint || b[1] >= varint {
		return false
	}
	end := 2
	switch typ := protowire.Type(b[0] & (1<<tagBits - 1)); typ {
	case protowire.VarintType:
		c.varint = uint64(b[1])
	case protowire.BytesType:
		if end += int(b[1]); end > len(b) {
			return false
		}
		c.bytes = b[2:end]
	default:
		return false
	}
	c.num, c.typ, c.rest = protowire.Number(b[0]>>tagBits), protowire.Type(b[0]&(1<<tagBits-1)), b[end:]
	return true
}

func (c *cursor) fail() bool {
	c.rest, c.err = nil, errWire
	return false
}

// isBytes reports whether the field is number num and holds bytes, a string or a message.
func (c *cursor) isBytes(num protowire.Number) bool {
	return c.num == num && c.typ == protowire.BytesType
}

// isVarint reports whether the field is number num and holds an integer or a bool.
func (c *cursor) isVarint(num protowire.Number) bool {
	return c.num == num && c.typ == protowire.VarintType
}

// The fields of Directory that hold entries.
const (
	directoryFiles       = 1
	directoryDirectories = 2
	directorySymlinks    = 3
	directoryProperties  = 5
)

// entryKind returns the kind of entry that the field of a Directory holds, 0 if none.
func (c *cursor) entryKind() Kind {
	if c.typ != protowire.BytesType {
		return 0
	}
	switch c.num {
	case directoryFiles:
		return File
	case directoryDirectories:
		return Dir
	case directorySymlinks:
		return Symlink
	}
	return 0
}

// The fields of FileNode, DirectoryNode and SymlinkNode.
const (
	nodeName          = 1 // of all three
	nodeDigest        = 2 // of files and directories
	symlinkTarget     = 2
	fileExecutable    = 4
	fileProperties    = 6
	symlinkProperties = 4
)

// A node is a FileNode, DirectoryNode or SymlinkNode. Its slices are parts of the message.
type node struct {
	name       []byte
	target     []byte
	hash       []byte
	size       int64
	seconds    int64
	nanos      int32
	mode       uint32
	executable bool
	has        fields
	late       bool // a name is not the first field
}

// fields are the optional fields that a node has.
type fields uint8

const (
	withDigest fields = 1 << iota
	withMTime
	withMode
)

// decode reads b, an encoded node of that kind. The zero node is ready for it.
func (n *node) decode(kind Kind, b []byte) error {
	c := cursor{rest: b}
	var err error
	for first := true; err == nil && c.next(); first = false {
		switch {
		case c.isBytes(nodeName):
			n.name, n.late = c.bytes, !first
		case kind == Symlink && c.isBytes(symlinkTarget):
			n.target = c.bytes
		case kind == Symlink && c.isBytes(symlinkProperties):
			err = n.decodeProperties(c.bytes)
		case kind != Symlink && c.isBytes(nodeDigest):
			err = n.decodeDigest(c.bytes)
		case kind == File && c.isVarint(fileExecutable):
			n.executable = protowire.DecodeBool(c.varint)
		case kind == File && c.isBytes(fileProperties):
			err = n.decodeProperties(c.bytes)
		}
	}
	if err != nil {
		return err
	}
	return c.err
}

func (n *node) decodeDigest(b []byte) error {
	n.has |= withDigest
	c := cursor{rest: b}
	for c.next() {
		switch {
		case c.isBytes(1):
			n.hash = c.bytes
		case c.isVarint(2):
			n.size = int64(c.varint)
		}
	}
	return c.err
}

// decodeProperties reads a NodeProperties message. Properties by name are only
// checked to be messages.
func (n *node) decodeProperties(b []byte) error {
	c := cursor{rest: b}
	var err error
	for err == nil && c.next() {
		switch {
		case c.isBytes(1):
			err = skipMessage(c.bytes)
		case c.isBytes(2):
			n.has |= withMTime
			err = n.decodeMTime(c.bytes)
		case c.isBytes(3):
			n.has |= withMode
			err = n.decodeMode(c.bytes)
		}
	}
	if err != nil {
		return err
	}
	return c.err
}

// decodeMTime reads a google.protobuf.Timestamp.
func (n *node) decodeMTime(b []byte) error {
	c := cursor{rest: b}
	for c.next() {
		switch {
		case c.isVarint(1):
			n.seconds = int64(c.varint)
		case c.isVarint(2):
			n.nanos = int32(c.varint)
		}
	}
	return c.err
}

// decodeMode reads a google.protobuf.UInt32Value.
func (n *node) decodeMode(b []byte) error {
	c := cursor{rest: b}
	for c.next() {
		if c.isVarint(1) {
			n.mode = uint32(c.varint)
		}
	}
	return c.err
}

func skipMessage(b []byte) error {
	c := cursor{rest: b}
	for c.next() {
		continue
	}
	return c.err
}

// digest checks and converts the node's digest; its errors wrap digest.ErrInvalid.
func (n *node) digest(fn digest.Function) (digest.Digest, error) {
	if n.has&withDigest == 0 {
		return digest.FromProto(fn, nil)
	}
	return digest.Parse(fn, text(n.hash), n.size)
}

// nameOf returns the name in an encoded node that was decoded before. Unless it may be late, it is
// the first field.
func nameOf(b []byte, late bool) (name []byte) {
	c := cursor{rest: b}
	for c.next() {
		if c.isBytes(nodeName) {
			name = c.bytes
		}
		if !late {
			break
		}
	}
	return name
}
