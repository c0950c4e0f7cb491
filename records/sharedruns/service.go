package sharedruns

import (
	"context"
	"crypto/sha256"
	"errors"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/record"
)

// maxKeeping limits the runs that are added concurrently, lockCount the locks of records, and
// maxFinding the records that are read concurrently: a decoded record takes several times as much
// memory as its encoding.
const maxKeeping, lockCount, maxFinding = 32, 64, 16

// Options are the dependencies of the service.
type Options struct {
	// Store keeps the records. Required.
	Store record.Hints
	// Granted reports whether the caller of ctx may write the result of an action. If it is nil,
	// every caller may.
	Granted func(ctx context.Context, instance string, action digest.Digest) bool
	// Read returns a blob from the storage. Required.
	Read func(ctx context.Context, instance string, d digest.Digest) ([]byte, error)
}

// Register adds the service to a gRPC server. The service needs no closing. The caller closes the
// store after g has stopped.
func Register(g grpc.ServiceRegistrar, o Options) {
	s := &service{options: o, keeping: make(chan struct{}, maxKeeping), finding: make(chan struct{}, maxFinding)}
	for i := range s.locks {
		s.locks[i] = make(chan struct{}, 1)
	}
	reuse.RegisterAccountsServer(g, s)
}

type service struct {
	reuse.UnimplementedAccountsServer
	options Options
	keeping chan struct{} // has a token for each run that is being added
	finding chan struct{} // has a token for each record that is being read
	// locks is selected by the record's key. A channel holds a token while a caller adds to a
	// record.
	locks [lockCount]chan struct{}
}

// enter waits for room and adds a token. The caller removes the token.
func enter(ctx context.Context, tokens chan struct{}) error {
	select {
	case tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Find implements reuse.AccountsServer.
func (s *service) Find(ctx context.Context, r *reuse.FindRequest) (*reuse.Record, error) {
	action, err := s.authorize(ctx, r)
	if err != nil {
		return nil, err
	}
	reduced, err := digest.FromProto(action.Function(), r.GetReducedActionDigest())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "reduced_action_digest: %v", err)
	}
	if err := enter(ctx, s.finding); err != nil {
		return nil, statusOf(err)
	}
	defer func() { <-s.finding }()
	known, err := Load(ctx, s.options.Store, Key(r.GetInstanceName(), reduced, r.GetCircumstances()))
	if err != nil {
		return nil, statusOf(err)
	}
	return known, nil
}

// Keep implements reuse.AccountsServer.
func (s *service) Keep(ctx context.Context, r *reuse.KeepRequest) (*emptypb.Empty, error) {
	action, err := s.authorize(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := CheckRun(r.GetRun(), action); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "run: %v", err)
	}
	select {
	case s.keeping <- struct{}{}:
		defer func() { <-s.keeping }()
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d runs are being added already", maxKeeping)
	}
	reduced, err := s.reduced(ctx, r.GetInstanceName(), action)
	if err != nil {
		return nil, err
	}
	if err := s.add(ctx, Key(r.GetInstanceName(), reduced, r.GetCircumstances()), r.GetRun()); err != nil {
		return nil, statusOf(err)
	}
	return &emptypb.Empty{}, nil
}

// A request has the common fields of both requests.
type request interface {
	GetInstanceName() string
	GetDigestFunction() repb.DigestFunction_Value
	GetActionDigest() *repb.Digest
	GetCircumstances() []byte
}

// authorize returns the action of a request, if the caller may write its result. Its errors are
// gRPC statuses.
func (s *service) authorize(ctx context.Context, r request) (digest.Digest, error) {
	fn, err := digest.FunctionFromProto(r.GetDigestFunction())
	if err != nil {
		return digest.Digest{}, status.Errorf(codes.InvalidArgument, "digest_function: %v", err)
	}
	if err := instance.Check(r.GetInstanceName()); err != nil {
		return digest.Digest{}, status.Errorf(codes.InvalidArgument, "instance_name: %v", err)
	}
	action, err := digest.FromProto(fn, r.GetActionDigest())
	if err != nil {
		return digest.Digest{}, status.Errorf(codes.InvalidArgument, "action_digest: %v", err)
	}
	if s.options.Granted != nil && !s.options.Granted(ctx, r.GetInstanceName(), action) {
		return digest.Digest{}, status.Errorf(codes.PermissionDenied,
			"runs of action %s are for the worker that has the action (see docs/SECURITY.md)", action)
	}
	if len(r.GetCircumstances()) != sha256.Size {
		return digest.Digest{}, status.Errorf(codes.InvalidArgument,
			"circumstances have %d bytes, want %d", len(r.GetCircumstances()), sha256.Size)
	}
	return action, nil
}

// reduced returns the reduced digest of an action. It reads the Action from the storage, so that a
// caller cannot name another command.
func (s *service) reduced(ctx context.Context, instance string, action digest.Digest) (digest.Digest, error) {
	b, err := s.options.Read(ctx, instance, action)
	if err != nil {
		return digest.Digest{}, status.Errorf(codes.FailedPrecondition, "action %s cannot be read: %v", action, err)
	}
	m := &repb.Action{}
	if err := proto.Unmarshal(b, m); err != nil {
		return digest.Digest{}, status.Errorf(codes.InvalidArgument, "action %s cannot be decoded: %v", action, err)
	}
	reduced, ok := Reduced(action.Function(), m)
	if !ok {
		return digest.Digest{}, status.Errorf(codes.InvalidArgument, "action %s cannot be encoded", action)
	}
	return reduced, nil
}

// add puts a run in front of the known ones, and removes a run that read the same.
func (s *service) add(ctx context.Context, k record.Key, young *reuse.Run) error {
	lock := s.locks[int(k.Digest.AppendHash(nil)[0])%lockCount]
	if err := enter(ctx, lock); err != nil {
		return err
	}
	defer func() { <-lock }()
	known, err := Load(ctx, s.options.Store, k)
	if err != nil {
		return err
	}
	merged, ok := Merge(young, known.GetRuns(), func(m *reuse.Run) bool { return !sameLooks(m.GetRoot(), young.GetRoot()) })
	if !ok {
		return record.ErrInvalid
	}
	b, err := Encode(merged)
	if err != nil {
		return err
	}
	return s.options.Store.Put(ctx, k, b)
}

// Load returns a record from a store. It is empty if there is none or if it is damaged.
func Load(ctx context.Context, store record.Hints, k record.Key) (*reuse.Record, error) {
	b, err := store.Get(ctx, k)
	if errors.Is(err, record.ErrNotFound) {
		return &reuse.Record{}, nil
	}
	if err != nil {
		return nil, err
	}
	known, err := Decode(b)
	if err != nil {
		return &reuse.Record{}, nil
	}
	return known, nil
}

// statusOf converts an error of the store to a gRPC status.
func statusOf(err error) error {
	switch {
	case errors.Is(err, record.ErrInvalid):
		return status.Errorf(codes.InvalidArgument, "run: it is too large to be kept: %v", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}
