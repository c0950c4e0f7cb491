package server

import (
	"context"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
)

// byteStreamService is google.bytestream.ByteStream over the Store.
type byteStreamService struct {
	bytestream.UnimplementedByteStreamServer
	s *Server
}

// The streams of ByteStream.
type (
	readStream  = grpc.GenericServerStream[bytestream.ReadRequest, bytestream.ReadResponse]
	writeStream = grpc.GenericServerStream[bytestream.WriteRequest, bytestream.WriteResponse]
)

// RegisterByteStream adds a ByteStream to g.
func RegisterByteStream(g grpc.ServiceRegistrar, s bytestream.ByteStreamServer) {
	g.RegisterService(ByteStreamDesc(), s)
}

// ByteStreamDesc describes the service to gRPC. The generated
// RegisterByteStreamServer takes a *grpc.Server only; this works with every
// grpc.ServiceRegistrar.
func ByteStreamDesc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "google.bytestream.ByteStream",
		HandlerType: (*bytestream.ByteStreamServer)(nil),
		Metadata:    "google/bytestream/bytestream.proto",
		Methods:     []grpc.MethodDesc{{MethodName: "QueryWriteStatus", Handler: handleQueryWriteStatus}},
		Streams: []grpc.StreamDesc{{
			StreamName:    "Read",
			ServerStreams: true,
			Handler: func(srv any, stream grpc.ServerStream) error {
				r := new(bytestream.ReadRequest)
				if err := stream.RecvMsg(r); err != nil {
					return err
				}
				return srv.(bytestream.ByteStreamServer).Read(r, &readStream{ServerStream: stream})
			},
		}, {
			StreamName:    "Write",
			ClientStreams: true,
			Handler: func(srv any, stream grpc.ServerStream) error {
				return srv.(bytestream.ByteStreamServer).Write(&writeStream{ServerStream: stream})
			},
		}},
	}
}

func handleQueryWriteStatus(
	srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
) (any, error) {
	r := new(bytestream.QueryWriteStatusRequest)
	if err := decode(r); err != nil {
		return nil, err
	}
	call := func(ctx context.Context, r any) (any, error) {
		return srv.(bytestream.ByteStreamServer).QueryWriteStatus(ctx, r.(*bytestream.QueryWriteStatusRequest))
	}
	if interceptor == nil {
		return call(ctx, r)
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/google.bytestream.ByteStream/QueryWriteStatus"}
	return interceptor(ctx, r, info, call)
}
