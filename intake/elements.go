package intake

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// elementBytes is what a message within another one takes beside its bytes: its struct, and where that is. textBytes is
	// the same of a text.
	elementBytes, textBytes = 96, 16
	// deepest is how deep messages are looked at: the decoder refuses others.
	deepest = 100
)

// Expansion returns how many bytes of memory an encoded message takes beside its own when it is decoded: a message within it
// takes two bytes encoded, and fifty times as many afterwards.
func Expansion(encoded []byte, m proto.Message) int64 {
	return expansionOf(encoded, m.ProtoReflect().Descriptor(), false, deepest)
}

// Known returns how many bytes of memory a message takes when all is discarded of it that is unknown.
func Known(encoded []byte, m proto.Message) int64 {
	return expansionOf(encoded, m.ProtoReflect().Descriptor(), true, deepest)
}

// expansionOf is that of what a descriptor describes. What the decoder will refuse ends it. Known counts texts of known fields, and
// nothing of others.
func expansionOf(b []byte, d protoreflect.MessageDescriptor, known bool, depth int) (n int64) {
	fields := d.Fields()
	for len(b) > 0 && depth > 0 {
		number, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return n
		}
		b = b[size:]
		f := fields.ByNumber(number)
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(number, kind, b); size < 0 {
				return n
			}
			if kind == protowire.StartGroupType && !known { // none of ours has groups
				n += elementBytes
			}
			b = b[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return n
		}
		b = b[size:]
		if f == nil && known {
			continue
		}
		n += textBytes
		switch {
		case f == nil:
		case f.Message() != nil:
			n += elementBytes + expansionOf(value, f.Message(), known, depth-1)
		case f.IsList() && f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.BytesKind: // packed
			n += 8 * int64(len(value))
		case known:
			n += int64(len(value))
		}
	}
	return n
}
