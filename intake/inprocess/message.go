package inprocess

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// A message is on its way. It is encoded, so that each side has one of its own: to encode and decode
// a message takes less than to copy its fields, and finds the same faults as a connection.
type message struct{ encoded mem.Buffer }

// encode returns a message with the content of m.
func encode(m any, pool mem.BufferPool) (message, error) {
	from, ok := m.(proto.Message)
	if !ok {
		return message{}, fault(codes.Internal, "a message is %T", m)
	}
	size := proto.Size(from)
	var buffer *[]byte
	if mem.IsBelowBufferPoolingThreshold(size) {
		small := make([]byte, 0, size)
		buffer = &small
	} else {
		buffer = pool.Get(size)
	}
	encoded, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buffer)[:0], from)
	if err != nil {
		mem.NewBuffer(buffer, pool).Free()
		return message{}, fault(codes.Internal, "a message cannot be encoded: %v", err)
	}
	*buffer = encoded
	return message{mem.NewBuffer(buffer, pool)}, nil
}

// size is the number of bytes.
func (m message) size() int { return m.encoded.Len() }

// free frees a message that nobody decodes.
func (m message) free() { m.encoded.Free() }

// decode decodes a message into m, and frees it.
func (m message) decode(into any) error {
	defer m.free()
	to, ok := into.(proto.Message)
	if !ok {
		return fault(codes.Internal, "a message is received as %T", into)
	}
	if err := proto.Unmarshal(m.encoded.ReadOnlyData(), to); err != nil {
		return fault(codes.Internal, "decode a message: %v", err)
	}
	return nil
}
