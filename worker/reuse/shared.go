package reuse

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/records/sharedruns"
)

const (
	// sharedTimeout bounds a call, and how long an action waits to know of a run of another worker.
	sharedTimeout = time.Second
	// maxAge is for how long a check of the machine is valid before a run of another worker is
	// reused.
	maxAge = time.Minute
	// senders is how many runs are being sent, and maxQueued and maxQueuedBytes limit the waiting
	// ones.
	senders, maxQueued, maxQueuedBytes = 4, 4096, 32 << 20
	// closeTimeout bounds how long Close waits for those.
	closeTimeout = 2 * time.Second
	// maxReply limits an answer: a record, and gRPC's overhead.
	maxReply = sharedruns.MaxBytes + 1<<16
)

// Outcomes of asking for the runs of other workers, and of sharing one.
const (
	sharedSpared      = "spared"
	sharedNone        = "none"
	sharedUnavailable = "unavailable"
	sharedKept        = "kept"
	sharedLost        = "lost"
)

// A Machine identifies machines that are alike to commands. Package machine has implementations.
type Machine interface {
	// As returns a name that the machine shares with machines that are alike, if it has not changed
	// since a time. It waits for the check, unless that would exceed the deadline of ctx.
	As(ctx context.Context, since time.Time) (name string, ok bool)
	// Known is As without a check and without waiting.
	Known(since time.Time) (name string, ok bool)
}

// NewCounts returns the counters of Shared.
func NewCounts() *prometheus.CounterVec {
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forerunner_worker_accounts_total",
		Help: "Runs that workers share: spared, a run of another worker was reused; none, no run matched; unavailable, the scheduler or the check " +
			"of the machine took too long; kept, a run of this worker was shared; lost, it could not be shared.",
	}, []string{"result"})
	for _, result := range []string{sharedSpared, sharedNone, sharedUnavailable, sharedKept, sharedLost} {
		counts.WithLabelValues(result)
	}
	return counts
}

// SharedOptions are the options of a Shared. All but Counts are required.
type SharedOptions struct {
	// Client is the service of the scheduler.
	Client  reuse.AccountsClient
	Machine Machine
	Logger  *zap.Logger
	// Counts are the result of NewCounts.
	Counts *prometheus.CounterVec
}

// Shared are runs that workers share through the scheduler. They are hints: if a call fails or is
// slow, no run is reused, and the action is delayed by no more than sharedTimeout. A nil Shared has
// none. Its methods may be called concurrently.
type Shared struct {
	options SharedOptions
	careful *record.Careful

	alive  context.Context
	abort  context.CancelFunc
	queue  chan sharing
	queued atomic.Int64 // bytes in queue
	ended  sync.WaitGroup

	mu     sync.Mutex
	closed bool // nothing may be queued any more; guarded by mu
}

// A Claim identifies the action of a request by the worker that runs it.
type Claim struct {
	Instance string
	Action   digest.Digest
	Reduced  digest.Digest // sharedruns.Reduced of the action
	How      []byte        // as in KeyOf
	Grant    string        // to write its result; empty: none is needed
}

// A sharing is a run to be sent to the other workers. While it waits it is in encoded form, which
// is all of its memory.
type sharing struct {
	claim Claim
	run   []byte
	ended time.Time
}

// bytes is the memory of s while it waits.
func (s sharing) bytes() int64 {
	return int64(len(s.run) + len(s.claim.How) + len(s.claim.Grant) + len(s.claim.Instance))
}

// OpenShared returns a Shared, which Close ends.
func OpenShared(o SharedOptions) *Shared {
	s := &Shared{
		options: o,
		careful: record.NewCareful(nil, record.CarefulOptions{
			Timeout: sharedTimeout, Logger: o.Logger, Subject: "runs of other workers", Without: "this worker reuses only its own runs",
		}),
		queue: make(chan sharing, maxQueued),
	}
	if s.options.Counts == nil {
		s.options.Counts = NewCounts()
	}
	s.alive, s.abort = context.WithCancel(context.Background())
	for range senders {
		s.ended.Go(func() {
			for next := range s.queue {
				s.queued.Add(-next.bytes())
				s.count(s.send(next))
			}
		})
	}
	return s
}

// Close sends the queued runs, unless that takes long or abort ends. Later runs are dropped.
func (s *Shared) Close(abort context.Context) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	close(s.queue)
	s.mu.Unlock()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.ended.Wait()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-sent:
	case <-timer.C:
	case <-abort.Done():
	}
	s.abort()
	<-sent
}

// Circumstances identifies, as in FindRequest, how commands run here (KeyOf) and on which machine.
// It is nil if no recent check of the machine is known. It does not wait.
func (s *Shared) Circumstances(how []byte) []byte {
	if s == nil {
		return nil
	}
	name, ok := s.options.Machine.Known(time.Now().Add(-maxAge))
	if !ok {
		return nil
	}
	return circumstances(how, name)
}

// refresh starts a check of the machine if the last one will soon be too old. It does not wait.
func (s *Shared) refresh() {
	if s == nil {
		return
	}
	ended, end := context.WithCancel(s.alive)
	end()
	_, _ = s.options.Machine.As(ended, time.Now().Add(-maxAge/2))
}

func (s *Shared) count(result string) { s.options.Counts.WithLabelValues(result).Inc() }

// find returns a run of any worker that saw nothing which t does not show.
func (s *Shared) find(ctx context.Context, c Claim, t lookback.Tree, storage lookback.Storage) (run lookback.Run, m *reuse.Run, o lookback.Outcome, why string) {
	asked, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	name, ok := s.options.Machine.As(asked, time.Now().Add(-maxAge))
	if !ok {
		s.count(sharedUnavailable)
		return lookback.Run{}, nil, lookback.Unknown, ""
	}
	var known *reuse.Record
	ok = s.careful.Try(asked, "find", names.AccountsBucket, func(ctx context.Context) (err error) {
		known, err = s.options.Client.Find(withGrant(ctx, c.Grant), &reuse.FindRequest{
			InstanceName: c.Instance, DigestFunction: c.Action.Function().Proto(), ActionDigest: c.Action.Proto(),
			ReducedActionDigest: c.Reduced.Proto(), Circumstances: circumstances(c.How, name),
		}, grpc.MaxCallRecvMsgSize(maxReply))
		return ofThisCall(err)
	})
	if !ok {
		s.count(sharedUnavailable)
		return lookback.Run{}, nil, lookback.Unknown, ""
	}
	run, m, o, why = t.Match(ctx, sharedruns.ValidRuns(c.Action.Function(), known), storage)
	if o == lookback.Reused {
		s.count(sharedSpared)
	} else {
		s.count(sharedNone)
	}
	return run, m, o, why
}

// keep schedules sharing a run that has ended. It does not wait for that.
func (s *Shared) keep(c Claim, m *reuse.Run) {
	encoded, err := proto.Marshal(m)
	next := sharing{c, encoded, time.Now()}
	size := next.bytes()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || len(encoded) > sharedruns.MaxBytes || s.closed || s.queued.Load()+size > maxQueuedBytes {
		s.count(sharedLost)
		return
	}
	select {
	case s.queue <- next:
		s.queued.Add(size)
	default:
		s.count(sharedLost)
	}
}

// send shares a run, once the machine is known to be unchanged since then.
func (s *Shared) send(next sharing) (result string) {
	name, ok := s.options.Machine.As(s.alive, next.ended)
	if !ok {
		return sharedLost
	}
	run := &reuse.Run{}
	if proto.Unmarshal(next.run, run) != nil {
		return sharedLost
	}
	ok = s.careful.Try(s.alive, "keep", names.AccountsBucket, func(ctx context.Context) error {
		_, err := s.options.Client.Keep(withGrant(ctx, next.claim.Grant), &reuse.KeepRequest{
			InstanceName: next.claim.Instance, DigestFunction: next.claim.Action.Function().Proto(),
			ActionDigest: next.claim.Action.Proto(), Circumstances: circumstances(next.claim.How, name), Run: run,
		})
		return ofThisCall(err)
	})
	if !ok {
		return sharedLost
	}
	return sharedKept
}

// ofThisCall distinguishes an error of one call from an error of all.
func ofThisCall(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.ResourceExhausted:
		return record.ErrInvalid
	}
	return err
}

func withGrant(ctx context.Context, grant string) context.Context {
	if grant == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, names.GrantHeader, grant)
}

// circumstances is a hash of how a command runs, and on which machine.
func circumstances(how []byte, machine string) []byte {
	b := append(binary.AppendUvarint(nil, uint64(len(how))), how...)
	sum := sha256.Sum256(append(b, machine...))
	return sum[:]
}
