package serve

import (
	"context"
	"errors"
	"net"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	oldreflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	casserver "github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/publish"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/settings"
)

// Callers limit the resources that callers can use in a program. The zero Callers derive the limits
// from the memory.
type Callers struct {
	Memory Memory `settings:"inline"`
	// MaxConnections limits the connections of all addresses, to twice that of one; MaxStreams
	// limits the calls on one connection: HTTP/2 has no larger number than its maximum. 0: by the
	// memory and the limit of open files.
	MaxConnections int `tuning:"max_connections" group:"Callers" unit:"NUMBER" min:"0" otherwise:"one for each 512 KiB of memory_limit, at most half of the limit of open files" doc:"Number of gRPC connections at a time; one address may have half of them"`
	MaxStreams     int `tuning:"max_streams" unit:"NUMBER" min:"0" max:"2147483647" otherwise:"4096, or three eighths of all calls that there is memory for" doc:"Number of calls at a time on one connection; clients wait beyond that"`
	// UploadWindow: if empty, the size depends on the memory; see intake.Bounds.Window.
	UploadWindow string `tuning:"upload_window" unit:"SIZE" otherwise:"a 16384th of memory_limit, from 64K to 1M" doc:"Bytes of one call that a client may send before the program reads them, from 64K to 16M; more is faster over long distances, but fewer clients can upload at a time"`
	// ReceiveTimeout is the time within which a request must begin to arrive; 0: 20 s.
	ReceiveTimeout time.Duration `tuning:"receive_timeout" unit:"TIME" min:"0" default:"20s" doc:"Time until the request of a call must begin to arrive"`
	// Waiting: if 0, the number depends on the memory. All of them start with the program, and each
	// takes some KiB.
	Waiting int `tuning:"waiting_goroutines" unit:"NUMBER" min:"0" max:"65536" otherwise:"one for each MiB of memory_limit, from 32 to 2048; 64 in forerunner up" doc:"Number of goroutines kept ready for calls, at most 65536; further calls start their own. More save CPU on large farms, fewer on small ones"`
	// MonitorSlack is for slackenMonitor.
	MonitorSlack time.Duration `tuning:"monitor_slack" unit:"TIME" min:"0" default:"1ms" doc:"Timer slack of the Go runtime's monitor thread and of the threads that it starts: a later wake-up saves CPU. 0 keeps the kernel's default of 50us. It requires CAP_SYS_NICE, and does not apply to commands"`
	// SpareProcessors is for the function of that name.
	SpareProcessors int `tuning:"spare_processors" unit:"NUMBER" min:"0" max:"64" default:"1" doc:"Processors of the Go runtime beyond the number of CPUs: a system call that waits keeps one for up to monitor_slack. GOMAXPROCS in the environment has precedence"`
	// HugePages is for PaceMemory.
	HugePages bool `tuning:"huge_pages" unit:"true|false" default:"true" doc:"Puts the program's memory on huge pages of the kernel where it is in use, once it has more than 1 GiB. It requires Linux 6.1, and takes no further memory"`
}

// FewWaiting is the number of Waiting goroutines of a farm on one machine. They take turns: each
// grows its stack at its first call, and with many goroutines that memory has left the CPU's caches
// when its turn comes again.
const FewWaiting = 64

// waiting is how many goroutines wait for calls with so much memory.
func (c *Callers) waiting(memory int64) uint32 {
	if c.Waiting > 0 {
		return uint32(c.Waiting)
	}
	return uint32(max(32, min(streamWorkers, memory>>20)))
}

// The range of upload_window. gRPC replaces less than 64 KiB without notice.
const minWindow, maxWindow = 64 << 10, 16 << 20

// Check returns an error unless the limits can be used.
func (c *Callers) Check() error {
	_, _, err := c.bounds()
	return err
}

// bounds returns limits for the available memory.
func (c *Callers) bounds() (memory int64, b intake.Bounds, err error) {
	if memory, err = c.Memory.Bytes(); err != nil {
		return 0, b, err
	}
	b = intake.BoundsFor(memory)
	b = limitConnections(b, c.MaxConnections)
	if c.MaxStreams > 0 {
		b.Streams = uint32(c.MaxStreams)
	}
	if c.ReceiveTimeout > 0 {
		b.Wait = c.ReceiveTimeout
	}
	window, err := settings.ParseSize(c.UploadWindow)
	if err == nil && window != 0 && (window < minWindow || window > maxWindow) {
		err = errors.New("it must be from 64K to 16M")
	}
	if err != nil {
		return 0, b, settings.Wrong("tuning.upload_window: %w", err)
	}
	if window > 0 {
		b = b.WithWindow(int32(window))
	}
	return memory, b, nil
}

// TokenBytes is the limit for verified tokens: 1/128 of the memory, at most 8 MiB.
func (c *Callers) TokenBytes() (int64, error) {
	n, err := c.Memory.CacheBytes(128 << 20)
	return n / 16, err
}

// fewBytes is for methods with small requests and any waiting time.
const fewBytes = 16 << 10

// eventBytes bounds an event of a build of which more is kept than that it came: old versions of
// Bazel name all files of a large target in one, and all versions all targets of a pattern.
const eventBytes = 16 << 20

// methodLimits are those of methods that take more, or less, than is customary.
func methodLimits() map[string]intake.Limits {
	limits := map[string]intake.Limits{
		reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName:    {Bytes: fewBytes, Stalls: true},
		oldreflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName: {Bytes: fewBytes, Stalls: true},
	}
	for _, m := range []string{
		repb.Execution_Execute_FullMethodName, repb.Execution_WaitExecution_FullMethodName,
		longrunningpb.Operations_WaitOperation_FullMethodName, "/google.bytestream.ByteStream/Read",
		healthpb.Health_Watch_FullMethodName,
	} {
		limits[m] = intake.Limits{Bytes: fewBytes, Waits: true}
	}
	for _, m := range []string{
		healthpb.Health_Check_FullMethodName, healthpb.Health_List_FullMethodName,
		live.Outputs_Tell_FullMethodName, // what it says is kept
	} {
		limits[m] = intake.Limits{Bytes: fewBytes}
	}
	// A build is silent while a long action runs. Its client reconnects when it is told to yield. A
	// build fails if one of its events is not answered, so too large ones are answered, too, unless
	// they are compressed.
	limits[publish.PublishBuildEvent_PublishBuildToolEventStream_FullMethodName] = intake.Limits{
		Bytes: eventBytes, Truncates: true, Stalls: true, Waits: true,
	}
	for _, m := range []string{ // these need no known caller
		healthpb.Health_Check_FullMethodName, healthpb.Health_List_FullMethodName, healthpb.Health_Watch_FullMethodName,
	} {
		l := limits[m]
		l.FewHeaders = true
		limits[m] = l
	}
	for _, m := range []string{
		"/google.bytestream.ByteStream/Write",
		repb.ContentAddressableStorage_FindMissingBlobs_FullMethodName,
		repb.ContentAddressableStorage_BatchUpdateBlobs_FullMethodName,
		repb.ContentAddressableStorage_BatchReadBlobs_FullMethodName,
		repb.ContentAddressableStorage_SpliceBlob_FullMethodName,
		repb.ActionCache_UpdateActionResult_FullMethodName,
		remoteworker.OperationQueue_Synchronize_FullMethodName,
	} {
		limits[m] = intake.Limits{Bytes: casserver.MaxMessageBytes}
	}
	return limits
}

// intake returns the admission of calls. c counts them, and a counts admitted ones.
func (p Protection) intake(c *calls, a *Activity) intake.Options {
	o := intake.Options{
		Methods:    methodLimits(),
		OuterUnary: []grpc.UnaryServerInterceptor{c.unary}, OuterStream: []grpc.StreamServerInterceptor{c.stream},
		Identify: p.identify,
	}
	if p.Guard != nil {
		o.Look, o.Pending = p.Guard.Look, p.pending
		o.Unary, o.Stream = append(o.Unary, p.Guard.Unary), append(o.Stream, p.Guard.Stream)
	}
	o.Unary, o.Stream = append(o.Unary, a.unary), append(o.Stream, a.stream)
	return o
}

// pending returns the address of a call whose token must be verified first, which may take a call
// to its issuer.
func (p Protection) pending(ctx context.Context, method string) string {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr.Network() == InProcessNetwork || p.Guard.Knows(ctx, method) {
		return ""
	}
	return addressName(from)
}

func addressName(from *peer.Peer) string {
	if a, ok := from.AuthInfo.(arrived); ok && a.conn != nil {
		return a.conn.Caller()
	}
	return intake.AddressCaller(intake.Host(from.Addr))
}

// identify returns the name that a call is charged to: a user or, for an unknown one, an address.
// This process is not charged.
func (p Protection) identify(ctx context.Context, method string) (context.Context, intake.Caller, error) {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr.Network() == InProcessNetwork {
		return ctx, intake.Caller{}, nil
	}
	if a, ok := from.AuthInfo.(arrived); ok && a.refused != nil {
		return ctx, intake.Caller{}, a.refused
	}
	address := intake.Caller{Name: addressName(from), Guest: p.Guard != nil}
	if p.Guard == nil {
		return ctx, address, nil
	}
	ctx, who, err := p.Guard.Admit(ctx, method)
	if err != nil || who == nil {
		return ctx, address, err
	}
	return ctx, intake.Caller{Name: intake.UserCaller(who.User)}, nil
}

// Accept returns l with a limit on its connections. While they cannot be accepted, as without a free
// descriptor, the program is not ready, and the log says why.
func (c *Callers) Accept(l net.Listener, s *intake.Server, ready *Readiness, log *zap.Logger) (net.Listener, error) {
	_, b, err := c.bounds()
	if err != nil {
		return nil, err
	}
	a := &acceptor{Listener: l, log: log}
	ready.Add("connections", a.fault)
	return intake.NewGate(b, s.Refused()).Listen(a), nil
}
