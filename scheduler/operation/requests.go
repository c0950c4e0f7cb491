package operation

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/kind"
	"github.com/forerunner-build/forerunner/scheduler/connection"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// maxTraceBytes bounds a trace header.
const maxTraceBytes = 4 << 10

// traceKeys are the W3C trace context headers.
var traceKeys = [...]string{"traceparent", "tracestate"}

// Storage is the storage interface of a Server; a Client of cas/client implements it. For a missing
// blob, errors.Is(err, digest.ErrNotFound) holds.
type Storage interface {
	Read(ctx context.Context, d digest.Digest) ([]byte, error)
	GetActionResult(ctx context.Context, d digest.Digest) (*repb.ActionResult, error)
}

// Options configure Requests. Storage and Rand are required.
type Options struct {
	Config tuning.Config
	// Storage returns the storage of an instance name, for one digest function.
	Storage func(instance string, fn digest.Function) Storage
	// MissingInputs returns the inputs of an action that an instance name lacks. Its errors are
	// gRPC statuses. Nil: no check.
	MissingInputs func(context.Context, string, digest.Function, *repb.Action) ([]digest.Digest, error)
	// Rand is the random source for the names of operations.
	Rand io.Reader
}

// Requests make operations of clients' requests.
type Requests struct {
	options Options
	// claims are the names of the claims for levels.
	claims    []string
	platforms *Platforms
}

// NewRequests returns Requests. The Config in the options must have its defaults filled in, as
// core.State does.
func NewRequests(o Options) *Requests {
	return &Requests{options: o, claims: o.Config.Claims(), platforms: &Platforms{ignored: o.Config.ActionProperties}}
}

// Config returns the Config of the Options.
func (s *Requests) Config() *tuning.Config { return &s.options.Config }

// Platforms returns the Platforms of all operations, for workers to share.
func (s *Requests) Platforms() *Platforms { return s.platforms }

// StorageOf returns the storage of an operation's action.
func (s *Requests) StorageOf(op *request.Operation) Storage {
	return s.options.Storage(op.Instance, op.Digest.Function())
}

// New makes an operation from the request alone; the action is not loaded yet. Its errors are gRPC
// statuses.
func (s *Requests) New(ctx context.Context, req *repb.ExecuteRequest) (*request.Operation, error) {
	if err := instance.Check(req.GetInstanceName()); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "instance_name: %v", err)
	}
	fn, err := digest.FunctionFromProto(req.GetDigestFunction())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	d, err := digest.FromProto(fn, req.GetActionDigest())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "action_digest: %v", err)
	}
	name, err := s.newName()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	op := &request.Operation{
		Name: name, Instance: req.GetInstanceName(), Digest: d, Client: connection.Host(ctx),
		Priority: req.GetExecutionPolicy().GetPriority(), Owner: &Extras{Sent: &Sent{}},
	}
	if who := auth.FromContext(ctx); who != nil {
		op.User, op.Claims = who.User, s.claimsOf(who)
	}
	if err := carry(ctx, op); err != nil {
		return nil, err
	}
	return op, nil
}

// newName returns a name for an operation: a random UUID, so that nobody can guess the operations
// of others.
func (s *Requests) newName() (string, error) {
	var u [16]byte
	if _, err := io.ReadFull(s.options.Rand, u[:]); err != nil {
		return "", fmt.Errorf("name an operation: %w", err)
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	var buffer [len(names.OperationPrefix + "00000000-0000-0000-0000-000000000000")]byte
	name := append(buffer[:0], names.OperationPrefix...)
	for i, part := range [...][]byte{u[:4], u[4:6], u[6:8], u[8:10], u[10:]} {
		if i > 0 {
			name = append(name, '-')
		}
		name = hex.AppendEncode(name, part)
	}
	return string(name), nil
}

// claimsOf returns the caller's claims that levels use for branches.
func (s *Requests) claimsOf(who *auth.Identity) map[string]string {
	if len(s.claims) == 0 {
		return nil
	}
	claims := make(map[string]string, len(s.claims))
	for _, name := range s.claims {
		claims[name] = who.Claim(name)
	}
	return claims
}

// carry copies data from the request's headers.
func carry(ctx context.Context, op *request.Operation) error {
	for _, k := range traceKeys {
		v := strings.Join(intake.Header(ctx, k), ",")
		if v == "" || len(v) > maxTraceBytes || !utf8.ValidString(v) {
			continue // no message takes it, and it is a hint
		}
		if op.Trace == nil {
			op.Trace = map[string]string{}
		}
		op.Trace[k] = v
	}
	v := intake.Header(ctx, names.RequestMetadataHeader)
	if len(v) == 0 {
		return nil
	}
	if n := len(v[0]); n > maxMetadataBytes {
		return status.Errorf(codes.InvalidArgument, "header %s has %d bytes; the maximum is %d",
			names.RequestMetadataHeader, n, maxMetadataBytes)
	}
	var err error
	if op.Request, err = decodeMetadata(v[0]); err != nil {
		return status.Errorf(codes.InvalidArgument, "header %s: %v", names.RequestMetadataHeader, err)
	}
	return nil
}

// Load fetches the action and, if the action has no platform, its command; otherwise the worker
// reads the command first. Its errors are gRPC statuses: FAILED_PRECONDITION for missing blobs,
// INVALID_ARGUMENT for invalid ones.
func (s *Requests) Load(ctx context.Context, storage Storage, op *request.Operation) error {
	action := &repb.Action{}
	if err := Read(ctx, storage, "action", op.Digest, action); err != nil {
		return err
	}
	fn := op.Digest.Function()
	commandDigest, err := digest.FromProto(fn, action.GetCommandDigest())
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "action %s: command_digest: %v", op.Digest, err)
	}
	if _, err := digest.FromProto(fn, action.GetInputRootDigest()); err != nil {
		return status.Errorf(codes.InvalidArgument, "action %s: input_root_digest: %v", op.Digest, err)
	}
	if err := s.limit(op, action); err != nil {
		return status.Errorf(codes.InvalidArgument, "action %s: timeout: %v", op.Digest, err)
	}
	if err := s.checkInputs(ctx, op, action); err != nil {
		return err
	}
	platform := action.GetPlatform()
	if platform == nil {
		// Clients older than API 2.2 name the platform in the command only.
		command := &repb.Command{}
		if err := Read(ctx, storage, "command", commandDigest, command); err != nil {
			return err
		}
		if len(command.GetArguments()) == 0 {
			return status.Errorf(codes.InvalidArgument, "command %s has no arguments", commandDigest)
		}
		AddExtras(op).Tool = kind.ToolOf(command.GetArguments())
		//lint:ignore SA1019 deprecated is what those clients send
		platform = command.GetPlatform()
	}
	if n := len(platform.GetProperties()); n > maxProperties {
		return status.Errorf(codes.InvalidArgument, "action %s: platform has %d properties; the maximum is %d", op.Digest, n, maxProperties)
	}
	matched := s.platforms.Matched(platform)
	op.Platform, platform = s.platforms.Of(matched)
	if matched != nil && matched == action.GetPlatform() {
		action.Platform = platform // one for all
	}
	op.Action = action
	return nil
}

// limit sets the timeout of an action: its own or, without one, the default. A longer one is cut to
// the maximum, which the client is told with the result.
func (s *Requests) limit(op *request.Operation, action *repb.Action) error {
	asked := action.GetTimeout()
	if asked != nil {
		if err := asked.CheckValid(); err != nil {
			return err
		}
	}
	switch d := asked.AsDuration(); {
	case d < 0:
		return fmt.Errorf("%s is negative", d)
	case d == 0:
		action.Timeout = durationpb.New(s.options.Config.ExecutionTimeout)
	case d > s.options.Config.MaxExecutionTimeout:
		action.Timeout = durationpb.New(s.options.Config.MaxExecutionTimeout)
		AddExtras(op).Note = fmt.Sprintf("the timeout of %s was cut to %s, the longest that the scheduler allows", d, s.options.Config.MaxExecutionTimeout)
	}
	return nil
}

// maxBytes limits client data in memory. Actions are kept, and passed on with a call; a command is
// read once.
func maxBytes(m proto.Message) int64 {
	if _, ok := m.(*repb.Action); ok {
		return 64 << 10
	}
	return 16 << 20
}

// smallMessage is the size from which messages of a client's are charged to the call that names
// them.
const smallMessage = 4 << 10

// Charge charges a call for the memory of its waiting operation, instead of its earlier charge.
func Charge(ctx context.Context, op *request.Operation) error {
	if err := intake.Reserve(ctx, 0); err != nil {
		return err
	}
	const kept = 2 // times as large as encoded
	n := kept * int64(proto.Size(op.Action))
	if n <= smallMessage {
		return nil
	}
	return intake.Reserve(ctx, n)
}

// Read fetches and decodes one message. Its errors are gRPC statuses.
func Read(ctx context.Context, storage Storage, what string, d digest.Digest, m proto.Message) error {
	if most := maxBytes(m); d.SizeBytes() > most {
		return status.Errorf(codes.InvalidArgument, "%s %s is larger than the maximum of %d bytes", what, d, most)
	}
	if d.SizeBytes() > smallMessage {
		const decoded = 6 // times as large
		if err := intake.Reserve(ctx, decoded*d.SizeBytes()); err != nil {
			return err
		}
	}
	b, err := storage.Read(ctx, d)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, digest.ErrNotFound) || status.Code(err) == codes.NotFound:
		return missing(what, d)
	case status.Code(err) != codes.Unknown:
		return status.Errorf(status.Code(err), "read %s %s: %v", what, d, err)
	default:
		return status.Errorf(codes.Unavailable, "read %s %s: %v", what, d, err)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return status.Errorf(codes.InvalidArgument, "%s %s cannot be decoded: %v", what, d, err)
	}
	return nil
}

// maxProperties limits platforms, because each is compared with the platforms of workers.
const maxProperties = 128

// maxMissing limits the blobs in one answer to a client.
const maxMissing = 10_000

// checkInputs fails unless the instance name of op has all inputs of its action; it does nothing if
// workers check this. The error is a gRPC status: FAILED_PRECONDITION with the missing blobs, so
// that the client uploads them.
func (s *Requests) checkInputs(ctx context.Context, op *request.Operation, action *repb.Action) error {
	if s.options.MissingInputs == nil {
		return nil
	}
	missing, err := s.options.MissingInputs(ctx, op.Instance, op.Digest.Function(), action)
	if err != nil || len(missing) == 0 {
		return err
	}
	st := status.Newf(codes.FailedPrecondition, "the storage lacks %d inputs of action %s, the first is %s", len(missing), op.Digest, missing[0])
	told := &errdetails.PreconditionFailure{}
	for _, d := range missing[:min(len(missing), maxMissing)] {
		told.Violations = append(told.Violations, &errdetails.PreconditionFailure_Violation{Type: "MISSING", Subject: d.BlobName()})
	}
	detailed, err := st.WithDetails(told)
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}
