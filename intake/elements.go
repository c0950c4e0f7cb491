package intake

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// elementBytes is the overhead of a nested message beside its bytes: its struct, and the
	// pointer to it. textBytes is the same for a string.
	elementBytes, textBytes = 96, 16
	// deepest is the depth up to which messages are examined: the decoder refuses deeper ones.
	deepest = 100
)

// Expansion returns how many additional bytes of memory an encoded message takes when it is
// decoded: a message within it takes two bytes encoded, and fifty times as many afterwards.
func Expansion(encoded []byte, m proto.Message) int64 {
	return expansionOf(encoded, m.ProtoReflect().Descriptor(), false, deepest)
}

// Known returns how many bytes of memory a message takes without its unknown fields.
func Known(encoded []byte, m proto.Message) int64 {
	return expansionOf(encoded, m.ProtoReflect().Descriptor(), true, deepest)
}

// expansionOf is the expansion of a message with a descriptor. It ends where the decoder will fail.
// Known counts strings of known fields, and nothing of others.
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
