package migration

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"sync"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/test/programs"
)

// schedulersLine matches the schedulers in the configuration of bb_storage, in the form of the page
// about migration.
var schedulersLine = regexp.MustCompile(`(?m)^schedulers: \{ '': \{ endpoint: \{ address: '([^']+)' \} \} \},$`)

// A storage stands in for bb_storage: it has blobs and results, which everyone may write, and
// forwards Execute to its scheduler. It asks the scheduler for its capabilities before it returns
// its own.
type storage struct {
	repb.UnimplementedExecutionServer
	repb.UnimplementedCapabilitiesServer
	*programs.Test
	address string
	served  *server.Server

	mu        sync.Mutex
	scheduler grpc.ClientConnInterface // guarded by mu
}

// startStorage starts a stand-in for bb_storage without a scheduler.
func startStorage(f *programs.Test) *storage {
	f.Helper()
	blobs, err := disk.Open(filepath.Join(f.Dir, "bb_storage", "cas"), disk.Options{MaxBytes: 1 << 30})
	if err != nil {
		f.Fatal(err)
	}
	actions, err := disk.OpenActions(filepath.Join(f.Dir, "bb_storage", "ac"), disk.ActionsOptions{})
	if err != nil {
		f.Fatal(errors.Join(err, blobs.Close()))
	}
	f.Cleanup(func() {
		if err := errors.Join(blobs.Close(), actions.Close()); err != nil {
			f.Error(err)
		}
	})
	s := &storage{Test: f, served: server.New(blobs, actions, server.Options{AllowActionUpdates: true})}
	s.address = serve(f, "127.0.0.1:0", func(g *grpc.Server) {
		s.served.Register(g)
		repb.RegisterExecutionServer(g, s)
		repb.RegisterCapabilitiesServer(g, s)
	}, grpc.MaxRecvMsgSize(server.MaxMessageBytes))
	return s
}

// serve serves at an address until the end of the test, and returns the address.
func serve(f *programs.Test, at string, register func(*grpc.Server), options ...grpc.ServerOption) string {
	f.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		f.Fatal(err)
	}
	g := grpc.NewServer(options...)
	register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	f.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			f.Error(err)
		}
	})
	return l.Addr().String()
}

// configure has a restarted storage read a configuration with this line.
func (s *storage) configure(line string) {
	s.Helper()
	m := schedulersLine.FindStringSubmatch(line)
	if m == nil {
		s.Fatalf("not a line of schedulers: %q", line)
	}
	conn := s.Dial(m[1])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scheduler = conn
}

// behind returns the connection to the scheduler.
func (s *storage) behind() (grpc.ClientConnInterface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scheduler == nil {
		return nil, status.Error(codes.Unavailable, "no scheduler is configured")
	}
	return s.scheduler, nil
}

// GetCapabilities implements repb.CapabilitiesServer.
func (s *storage) GetCapabilities(ctx context.Context, r *repb.GetCapabilitiesRequest) (*repb.ServerCapabilities, error) {
	conn, err := s.behind()
	if err != nil {
		return nil, err
	}
	can, err := repb.NewCapabilitiesClient(conn).GetCapabilities(ctx, r)
	if err != nil {
		return nil, err
	}
	can.CacheCapabilities = s.served.CacheCapabilities()
	return can, nil
}

// Execute implements repb.ExecutionServer.
func (s *storage) Execute(r *repb.ExecuteRequest, stream repb.Execution_ExecuteServer) error {
	conn, err := s.behind()
	if err != nil {
		return err
	}
	further, err := repb.NewExecutionClient(conn).Execute(stream.Context(), r)
	if err != nil {
		return err
	}
	for {
		op, err := further.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(op); err != nil {
			return err
		}
	}
}
