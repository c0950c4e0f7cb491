package intake

import (
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// beginBytes is how much of a message that is too large is decoded: no more than of a small one.
const beginBytes = smallMessage

// receiveBegin receives a message that is too large, of that many bytes. It decodes the beginning,
// and drops the rest.
func (r *receiver) receiveBegin(length int64, m any) error {
	decoded, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "decode the request: %T", m)
	}
	buffer := make([]byte, beginBytes)
	for left := length; left > 0; {
		part := buffer[:min(left, beginBytes)]
		if err := r.raw.ReadMessageHeader(part); err == io.EOF {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
		if left == length {
			if err := decodeBegin(part, decoded); err != nil {
				return err
			}
		}
		left -= int64(len(part))
	}
	if r.single {
		return r.end()
	}
	return nil
}

// decodeBegin decodes the complete fields of the beginning of a message.
func decodeBegin(begin []byte, m proto.Message) error {
	if err := proto.Unmarshal(wholeOf(begin, m.ProtoReflect().Descriptor(), deepest), m); err != nil {
		return status.Errorf(codes.Internal, "decode the request: %v", err)
	}
	return nil
}

// wholeOf returns the complete fields in the beginning of an encoded message; of a truncated nested
// message its complete fields.
func wholeOf(begin []byte, d protoreflect.MessageDescriptor, depth int) (whole []byte) {
	for rest := begin; len(rest) > 0 && depth > 0; {
		number, kind, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			break
		}
		if value := protowire.ConsumeFieldValue(number, kind, rest[tag:]); value >= 0 {
			whole, rest = append(whole, rest[:tag+value]...), rest[tag+value:]
			continue
		}
		_, size := protowire.ConsumeVarint(rest[tag:])
		if f := d.Fields().ByNumber(number); kind == protowire.BytesType && size > 0 && f != nil && f.Message() != nil {
			whole = protowire.AppendTag(whole, number, kind)
			whole = protowire.AppendBytes(whole, wholeOf(rest[tag+size:], f.Message(), depth-1))
		}
		break
	}
	return whole
}
