package buildevents

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/bazel"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/publish"
)

const (
	// maxName bounds the names of builds and projects.
	maxName = 256
	// liveBytes is the memory of a build while it is published.
	liveBytes = 256 << 10
	// An event may take twice its size in memory when it is decoded, within these limits. Unknown
	// fields, most of a large event, are dropped before.
	leastDecoded, mostDecoded = 64 << 10, 2 << 20
	// searches is how many builds are looked for at once.
	searches = 2
)

// bazelEvent is the type of Bazel's events.
const bazelEvent = "type.googleapis.com/build_event_stream.BuildEvent"

// A Service receives build events.
type Service struct {
	publish.UnimplementedPublishBuildEventServer
	store    *history.Store
	searches *intake.Turns
	events   *prometheus.CounterVec

	mu   sync.Mutex
	live map[key]*live // guarded by mu
}

var _ publish.PublishBuildEventServer = (*Service)(nil)

// A key identifies a build. It includes the user, so that no user changes another user's build, and
// the id of the build, which is another one if the user publishes two with one invocation id.
type key struct{ user, invocation, build string }

// New returns a Service that keeps builds in a store; if that is nil, it keeps nothing, and answers
// all events. Metrics may be nil.
func New(store *history.Store, metrics prometheus.Registerer) *Service {
	s := &Service{
		store: store, searches: intake.NewTurns(searches), live: map[key]*live{},
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forerunner_scheduler_build_events_total",
			Help: "Acknowledged build events by result: taken, too_large, not_kept.",
		}, []string{"result"}),
	}
	for _, result := range []string{taken, tooLarge, notKept} {
		s.events.WithLabelValues(result)
	}
	if metrics != nil {
		metrics.MustRegister(s.events, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forerunner_scheduler_builds_publishing", Help: "Builds that are publishing events.",
		}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(len(s.live))
		}))
	}
	return s
}

// The result of an event: it is applied, it is too large, or its build is not stored.
const taken, tooLarge, notKept = "taken", "too_large", "not_kept"

// Register adds the Service to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) { publish.RegisterPublishBuildEventServer(r, s) }

// PublishLifecycleEvent implements publish.PublishBuildEventServer. All of it is in the events of
// the build tool, too.
func (s *Service) PublishLifecycleEvent(context.Context, *publish.PublishLifecycleEventRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// A stream is one call by which a build is published.
type stream struct {
	service *Service
	ctx     context.Context   // of the one call
	id      *publish.StreamId // without unknown fields, which have no limit
	last    int64             // number of its last event
	live    *live             // nil: nothing is kept
}

// PublishBuildToolEventStream implements publish.PublishBuildEventServer.
func (s *Service) PublishBuildToolEventStream(
	events grpc.BidiStreamingServer[publish.PublishBuildToolEventStreamRequest, publish.PublishBuildToolEventStreamResponse],
) error {
	in := &stream{service: s, ctx: events.Context()}
	defer func() { s.leave(in) }()
	for {
		req, err := events.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := in.take(req); err != nil {
			return err
		}
		if err := events.Send(&publish.PublishBuildToolEventStreamResponse{
			StreamId: in.id, SequenceNumber: req.GetOrderedBuildEvent().GetSequenceNumber(),
		}); err != nil {
			return err
		}
	}
}

// take takes an event over.
func (in *stream) take(req *publish.PublishBuildToolEventStreamRequest) error {
	e := req.GetOrderedBuildEvent()
	said, n := e.GetStreamId(), e.GetSequenceNumber()
	id := &publish.StreamId{BuildId: said.GetBuildId(), Component: said.GetComponent(), InvocationId: said.GetInvocationId()}
	switch {
	case n < 1 || id.GetInvocationId() == "":
		return status.Error(codes.InvalidArgument, "an event has an invocation_id, and a sequence_number from 1 on")
	case len(id.GetInvocationId()) > maxName || len(id.GetBuildId()) > maxName || len(req.GetProjectId()) > maxName:
		return status.Errorf(codes.InvalidArgument, "names have at most %d bytes", maxName)
	case in.id == nil:
		in.id = id
		in.join(req)
	case !proto.Equal(in.id, id):
		return status.Error(codes.InvalidArgument, "a call has the events of one stream")
	case n > in.last+1:
		return status.Errorf(codes.InvalidArgument, "event %d came after event %d: the numbers of a stream have no gaps", n, in.last)
	}
	in.last = max(in.last, n)
	if in.live == nil {
		in.service.events.WithLabelValues(notKept).Inc()
		return nil
	}
	if !in.live.take(in, n, e.GetEvent()) {
		return status.Error(codes.Aborted, "this stream was resumed by another call")
	}
	return nil
}

// join finds the build of the stream, and continues from its stored state.
func (in *stream) join(req *publish.PublishBuildToolEventStreamRequest) {
	s, first := in.service, req.GetOrderedBuildEvent().GetSequenceNumber()
	if s.store == nil || intake.Reserve(in.ctx, liveBytes) != nil {
		return // its events are answered
	}
	k := key{userOf(in.ctx), in.id.GetInvocationId(), in.id.GetBuildId()}
	var known *historypb.Record
	s.mu.Lock()
	_, isLive := s.live[k]
	s.mu.Unlock()
	if !isLive && first > 1 {
		known = s.find(in.ctx, k)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.live[k]
	if l == nil {
		l = newLive(s, k, resumed(known))
		s.live[k] = l
	}
	l.join(in, req.GetProjectId(), first)
	in.live = l
}

// leave ends a stream. If its build continues, the next stream finds it in the store.
func (s *Service) leave(in *stream) {
	if in.live == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.live.leave(in) {
		delete(s.live, in.live.key)
	}
}

// find returns the last record of a build of a user; nil: there is none.
func (s *Service) find(ctx context.Context, k key) *historypb.Record {
	leave, err := s.searches.Take(ctx, auth.CallerOf(ctx))
	if err != nil {
		return nil
	}
	defer leave()
	found, _, err := s.store.Find(ctx, history.Query{
		Builds: true, Order: history.Latest, Limit: 1, Exact: true,
		Where: map[history.Field]string{history.Invocation: k.invocation, history.User: k.user},
	})
	if err != nil || len(found) == 0 {
		return nil
	}
	return found[0]
}

func userOf(ctx context.Context) string {
	if i := auth.FromContext(ctx); i != nil {
		return i.User
	}
	return ""
}

// decoded returns Bazel's event; nil: it is not read. It is too large if package intake has passed
// only its beginning, without a value, or if it takes too much memory.
func decoded(packed *anypb.Any) (e *bazel.BuildEvent, isTooLarge bool) {
	b := packed.GetValue()
	if packed.GetTypeUrl() != bazelEvent {
		return nil, false
	}
	e = &bazel.BuildEvent{}
	if len(b) == 0 || intake.Known(b, e) > min(max(2*int64(len(b)), leastDecoded), mostDecoded) {
		return nil, true
	}
	if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, e) != nil {
		return nil, false
	}
	return e, false
}

// A build that is published is written when it has changed: what people look for (its command, user
// and patterns, failures, and its end) gather after the event and leastWait after the last write.
// With the interval of package history, a scheduler that is killed loses at most a second of it.
// Counts, and targets and tests without a failure, may wait longer, so that a build of any size
// adds at most bytesPerSecond to the records.
const gather, leastWait, bytesPerSecond = 250 * time.Millisecond, 500 * time.Millisecond, 4 << 10
