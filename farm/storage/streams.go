package farm

import (
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"

	casserver "github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/scheduler"
)

// A streamsRegistrar registers services, a ByteStream of storage so that it has the
// streams of the scheduler as well: a gRPC server can have one only.
type streamsRegistrar struct {
	grpc.ServiceRegistrar
	scheduler *scheduler.Server
}

// RegisterService implements grpc.ServiceRegistrar.
func (r streamsRegistrar) RegisterService(d *grpc.ServiceDesc, service any) {
	if s, ok := service.(bytestream.ByteStreamServer); ok {
		service = r.scheduler.ByteStream(s)
	}
	r.ServiceRegistrar.RegisterService(d, service)
}

// serveStreams registers the storage services on the scheduler's port, if the storage is embedded,
// and the scheduler's streams.
func (s *storage) serveStreams(g grpc.ServiceRegistrar, sched *scheduler.Server) {
	if s.register == nil {
		casserver.RegisterByteStream(g, sched.ByteStream(&bytestream.UnimplementedByteStreamServer{}))
		return
	}
	s.register(streamsRegistrar{g, sched})
}
