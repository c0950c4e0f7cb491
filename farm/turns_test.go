package farm

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/records/redistest"
)

// A started is a scheduler that may not serve yet.
type started struct {
	*testing.T
	logs  *observer.ObservedLogs
	ready chan string
	ended chan struct{}
	err   error // of Run, when that has ended
}

// startTurns starts s, and ends it with the test.
func startTurns(t *testing.T, s Scheduler) *started {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	s.Data, s.Logger = t.TempDir(), zap.New(core)
	if s.Listen == "" {
		s.Listen = freeport.Address(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := &started{T: t, logs: logs, ready: make(chan string, 1), ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		f.err = s.Run(ctx, context.Background(), func(address string) error { f.ready <- address; return nil })
	}()
	t.Cleanup(func() {
		cancel()
		<-f.ended
	})
	return f
}

// patience is the timeout of every wait.
const patience = 2 * time.Minute

// says returns when the log has a message n times, and fails the test if the scheduler ends before.
func (f *started) says(n int, message string) {
	f.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for tick := time.NewTicker(5 * time.Millisecond); f.logs.FilterMessage(message).Len() < n; {
		select {
		case <-f.ended:
			f.Fatalf("the scheduler has ended: %v", f.err)
		case <-deadline.C:
			f.Fatalf("the log does not say %d times: %s", n, message)
		case <-tick.C:
		}
	}
}

// serves returns the scheduler's address when it serves.
func (f *started) serves() (address string) {
	f.Helper()
	select {
	case address = <-f.ready:
	case <-f.ended:
		f.Fatalf("the scheduler has ended: %v", f.err)
	case <-time.After(patience):
		f.Fatal("the scheduler does not serve")
	}
	return address
}

// ends returns the error of a scheduler that ends by itself.
func (f *started) ends() error {
	f.Helper()
	select {
	case <-f.ended:
	case <-time.After(patience):
		f.Fatal("the scheduler goes on")
	}
	return f.err
}

// TestTurnWithoutRecords has a Redis that returns everything except drains. Waiting schedulers must
// continue to wait, and serve when it returns the drains.
func TestTurnWithoutRecords(t *testing.T) {
	redis := redistest.Start(t)
	blobs := serveTerm(t, Scheduler{Storage: storage.Settings{CacheSize: "10M"}})
	redis.Do("ACL", "SETUSER", "default", "resetkeys", "~forerunner:{"+names.LeaseBucket+"}*")
	f := startTurns(t, Scheduler{
		State: state.Location("redis://" + redis.Addr), Storage: storage.Settings{Location: "grpc://" + blobs.conn.Target()}, Lease: "main", LeaseTime: 2 * time.Second,
	})
	f.says(2, "the scheduler stopped serving; waiting for the lease again")
	redis.Do("ACL", "SETUSER", "default", "allkeys")
	f.serves()
}

// TestTurnThatIsLost has another program take the lease before the storage has answered. Only the
// term must end.
func TestTurnThatIsLost(t *testing.T) {
	redis := redistest.Start(t)
	f := startTurns(t, Scheduler{
		State: state.Location("redis://" + redis.Addr), Storage: storage.Settings{Location: "grpc://" + silent(t).Addr().String()}, Lease: "main", LeaseTime: 2 * time.Second,
	})
	f.says(1, "lease taken")
	store, err := records.OpenRedis("redis://"+redis.Addr, records.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	// The new holder is dead.
	lease := records.Key{Bucket: names.LeaseBucket, Digest: digest.Of(digest.SHA256, []byte("main"))}
	if err := store.Put(t.Context(), lease, []byte(`{"term": 4000000000000000, "holder": "somebody else"}`)); err != nil {
		t.Fatal(err)
	}
	f.says(1, "the scheduler stopped serving; waiting for the lease again")
	f.says(2, "lease taken")
}

// TestTurnWithWrongRecords has invalid drains. Waiting would not help, so the program must end.
func TestTurnWithWrongRecords(t *testing.T) {
	redis := redistest.Start(t)
	blobs := serveTerm(t, Scheduler{Storage: storage.Settings{CacheSize: "10M"}})
	store, err := records.OpenRedis("redis://"+redis.Addr, records.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := Scheduler{
		State: state.Location("redis://" + redis.Addr), Storage: storage.Settings{Location: "grpc://" + blobs.conn.Target()}, Lease: "main", LeaseTime: 2 * time.Second,
	}
	drains, _ := s.durable(store)
	if err := drains.Write(t.Context(), []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := startTurns(t, s).ends(); err == nil {
		t.Error("the scheduler ends without an error")
	}
}

// TestTurnWithoutStorage has a holder of the lease that cannot reach the storage. Another
// scheduler, which can, must serve.
func TestTurnWithoutStorage(t *testing.T) {
	redis := redistest.Start(t)
	blobs := serveTerm(t, Scheduler{Storage: storage.Settings{CacheSize: "10M"}})
	shared := Scheduler{State: state.Location("redis://" + redis.Addr), Lease: "main", LeaseTime: 2 * time.Second}
	cut, whole := shared, shared
	cut.Storage.Location, whole.Storage.Location = "grpc://"+silent(t).Addr().String(), "grpc://"+blobs.conn.Target()
	first := startTurns(t, cut)
	first.says(1, "lease taken")
	startTurns(t, whole).serves()
	first.says(1, "the scheduler stopped serving; waiting for the lease again")
}

// A front is a storage in front of a scheduler, as bb_storage may be: it knows its capabilities
// when it has asked the scheduler.
type front struct {
	repb.UnimplementedCapabilitiesServer
	behind repb.CapabilitiesClient
}

func (f front) GetCapabilities(ctx context.Context, r *repb.GetCapabilitiesRequest) (*repb.ServerCapabilities, error) {
	m, err := f.behind.GetCapabilities(ctx, r)
	if err != nil {
		return nil, err
	}
	if !m.GetExecutionCapabilities().GetExecEnabled() {
		return nil, status.Error(codes.Internal, "the scheduler executes nothing")
	}
	m.CacheCapabilities = &repb.CacheCapabilities{MaxBatchTotalSizeBytes: 77}
	return m, nil
}

// TestCircularStart has a scheduler whose storage starts later, and asks the scheduler for its
// capabilities before it answers. Both must start. Until then the scheduler must not appear to
// serve.
func TestCircularStart(t *testing.T) {
	redis := redistest.Start(t)
	for name, s := range map[string]Scheduler{
		"alone":  {},
		"leased": {State: state.Location("redis://" + redis.Addr), Lease: "main", LeaseTime: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := freeport.Address(t)
			s.Listen, s.HTTP, s.Storage.Location = freeport.Address(t), freeport.Address(t), "grpc://"+address
			f := startTurns(t, s)
			becomes(t, s.HTTP, http.StatusServiceUnavailable, "storage: grpc://"+address+" has not returned its capabilities yet")
			conn, err := (&dial.Client{}).Dial(s.Listen)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); h.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
				t.Errorf("health without storage: %v, %v", h, err)
			}
			if len(f.ready) > 0 {
				t.Error("it says that it serves")
			}
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			scheduler := repb.NewCapabilitiesClient(conn)
			repb.RegisterCapabilitiesServer(server, front{behind: scheduler})
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			defer func() {
				server.Stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			}()
			f.serves()
			becomes(t, s.HTTP, http.StatusOK, "ready")
			if can, err := scheduler.GetCapabilities(t.Context(), &repb.GetCapabilitiesRequest{}); can.GetCacheCapabilities().GetMaxBatchTotalSizeBytes() != 77 {
				t.Errorf("it can %v, %v", can, err)
			}
		})
	}
}

// A foreign server knows no storage.
type foreign struct {
	repb.UnimplementedCapabilitiesServer
}

// TestStorageThatIsNone has a server that answers that it is not a storage. Waiting would be
// useless.
func TestStorageThatIsNone(t *testing.T) {
	server := grpc.NewServer()
	repb.RegisterCapabilitiesServer(server, foreign{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	if err := startTurns(t, Scheduler{Storage: storage.Settings{Location: "grpc://" + l.Addr().String()}}).ends(); status.Code(err) != codes.Unimplemented {
		t.Errorf("it ends with %v", err)
	}
}

// TestStopWithoutStorage has a scheduler told to end while it waits for its storage, which is no
// fault.
func TestStopWithoutStorage(t *testing.T) {
	l := silent(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := Scheduler{Listen: freeport.Address(t), Storage: storage.Settings{Location: "grpc://" + l.Addr().String()}, Data: t.TempDir(), Logger: zap.NewNop()}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, context.Background(), nil) }()
	asks, err := l.Accept()
	cancel()
	if ended := <-ended; ended != nil {
		t.Errorf("it ends with %v", ended)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = asks.Close()
}

// silent returns a port that takes connections and says nothing.
func silent(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
