package storage

import (
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"

	casserver "github.com/forerunner-build/forerunner/cas/server"
)

// Streams adds the scheduler's streams to the ByteStream of storage.
type Streams interface {
	ByteStream(storage bytestream.ByteStreamServer) bytestream.ByteStreamServer
}

// A streamsRegistrar registers services, a ByteStream of storage so that it has the
// streams of the scheduler as well: a gRPC server can have one only.
type streamsRegistrar struct {
	grpc.ServiceRegistrar
	streams Streams
}

// RegisterService implements grpc.ServiceRegistrar.
func (r streamsRegistrar) RegisterService(d *grpc.ServiceDesc, service any) {
	if s, ok := service.(bytestream.ByteStreamServer); ok {
		service = r.streams.ByteStream(s)
	}
	r.ServiceRegistrar.RegisterService(d, service)
}

// Register registers embedded storage on the scheduler's port, with the scheduler's streams.
func (s *Opened) Register(g grpc.ServiceRegistrar, scheduler Streams) {
	if s.register == nil {
		casserver.RegisterByteStream(g, scheduler.ByteStream(&bytestream.UnimplementedByteStreamServer{}))
		return
	}
	s.register(streamsRegistrar{g, scheduler})
}
