package live

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/scheduler/connection"
	"github.com/forerunner-build/forerunner/scheduler/engine"
)

// Service returns the service for workers, until stopped is closed.
func (l *Registry) Service(stopped <-chan struct{}) live.OutputsServer {
	return service{registry: l, stopped: stopped}
}

// A service is Forerunner's extension for workers that offer the output of commands.
type service struct {
	registry *Registry
	stopped  <-chan struct{}
	live.UnimplementedOutputsServer
}

// Serve sends a worker its watches.
func (s service) Serve(req *live.ServeRequest, stream grpc.ServerStreamingServer[live.Watch]) error {
	if n := len(req.GetWorkers()); n == 0 || n > maxIdentities {
		return status.Errorf(codes.InvalidArgument, "%d identities; 1 to %d are allowed", n, maxIdentities)
	}
	shows, end, err := s.registry.show(req, connection.Boot(stream.Context()))
	if err != nil {
		return status.Errorf(codes.AlreadyExists, "%v: give each worker an --id of its own", err)
	}
	defer end()
	for {
		select {
		case w := <-shows.asks:
			if err := stream.Send(w); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.stopped:
			return engine.ErrStopped()
		}
	}
}

// Push passes a chunk on.
func (s service) Push(ctx context.Context, c *live.Chunk) (*live.Pushed, error) {
	done, err := s.registry.push(ctx, c)
	if err != nil {
		return nil, err
	}
	return &live.Pushed{Done: done}, nil
}

// Tell stores a worker's report of its state.
func (s service) Tell(ctx context.Context, r *live.Report) (*live.Told, error) {
	if !s.registry.tell(r, connection.Boot(ctx)) {
		return nil, status.Error(codes.FailedPrecondition, "the worker is not connected for live output")
	}
	return &live.Told{}, nil
}
