package server

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// MaxMessageBytes is the message limit for a gRPC server that registers a Server
// (grpc.MaxRecvMsgSize): a full batch and its overhead, or a FindMissingBlobs of some 200,000
// digests.
const MaxMessageBytes = 16 << 20

// The named bounds of Server.
const (
	// maxMessageBlob bounds the blobs that are decoded as Directory or Tree. A
	// directory of a million files takes some 100 MiB.
	maxMessageBlob = 256 << 20
)

// Options are the options of a Server. Zero values mean the defaults.
type Options struct {
	Logger *zap.Logger
	// MaxBatchBytes bounds the blobs of one BatchReadBlobs or BatchUpdateBlobs;
	// default 3.75 MiB.
	MaxBatchBytes int64
	// MaxBlobBytes bounds one uploaded blob; 0 means only by the Store.
	MaxBlobBytes int64
	// AllowActionUpdates lets every caller write to the action cache. Otherwise a caller must
	// present the grant of Grants for that action; with nil Grants no caller can.
	AllowActionUpdates bool
	Grants             *Grants
	// WaitForMemory waits until a call may use so many bytes of memory, including those for its
	// answer; 0 means that it needs none any more. It gets the context of the call. Nil: there is
	// always enough.
	WaitForMemory func(ctx context.Context, bytes int64) error
	// Memory is the memory limit of the program, of which the Server takes a small part; 0: no
	// limit.
	Memory int64
	// MaxPartialUploads bounds the interrupted uploads that are kept to be resumed (default 128).
	// PartialUploadAge is for how long they are kept (default 30 minutes); an expired one is
	// removed when the next upload begins or breaks off. They take space in the Store, and are
	// removed earlier, the oldest first, when another upload needs it.
	MaxPartialUploads int
	PartialUploadAge  time.Duration
}

func (o *Options) validate() {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.MaxBatchBytes <= 0 {
		o.MaxBatchBytes = cas.BatchBytes
	}
	o.MaxBatchBytes = min(o.MaxBatchBytes, MaxMessageBytes)
	o.MaxBlobBytes = max(o.MaxBlobBytes, 0)
	if o.WaitForMemory == nil {
		o.WaitForMemory = func(context.Context, int64) error { return nil }
	}
	if o.MaxPartialUploads <= 0 {
		o.MaxPartialUploads = 128
	}
	if o.PartialUploadAge <= 0 {
		o.PartialUploadAge = 30 * time.Minute
	}
}

// Store is the store of a Server, such as disk.Store.
type Store interface {
	Receiver
	// Isolated reports whether each instance name sees only blobs whose bytes it has uploaded.
	Isolated() bool
	// Of returns the blobs of an instance name: all blobs, unless the store is Isolated.
	Of(instance string) cas.Content
	// OnFull has writes outside the Server discard idle uploads when there is no room for them.
	OnFull(givingWay func(op func() error) error)
}

// Results are the results of actions, by instance name.
type Results interface {
	// Get returns the result, which the caller may change, or an error that wraps ErrNotFound.
	Get(ctx context.Context, instance string, d digest.Digest) (*repb.ActionResult, error)
	Put(ctx context.Context, instance string, d digest.Digest, r *repb.ActionResult) error
}

// A Server serves a store and results as REv2's ContentAddressableStorage, ByteStream and
// ActionCache. It starts no goroutines and needs no closing; its unfinished uploads lie in the
// Store's TempDir. Action results belong to their instance name. Blobs are shared by all, unless
// disk.Options.Isolate is set: then an instance name has those that it has uploaded, and all others
// are missing for it.
type Server struct {
	store   Store        // only for its room; see content
	shared  cas.Readable // of a Reader; nil: content depends on the instance name
	actions Results
	trees   ownTrees
	recent  recent
	options Options
	log     *zap.Logger
	uploads *uploads
	// decoder and encoder serve the entries of batches. Both may be used
	// concurrently (DecodeAll, EncodeAll).
	decoder *zstd.Decoder
	encoder *zstd.Encoder
}

// New returns a Server over s and a. The caller closes these after the gRPC server has stopped.
func New(s Store, a Results, o Options) *Server {
	o.validate()
	uploads := newUploads(s, o.MaxPartialUploads, o.PartialUploadAge)
	s.OnFull(uploads.givingWay)
	return &Server{
		store:   s,
		actions: a,
		options: o,
		log:     o.Logger,
		recent:  newRecent(o.Memory),
		uploads: uploads,
		decoder: wire.NewBatchDecoder(),
		encoder: wire.NewBatchEncoder(),
	}
}

// Register adds the three services to g. Capabilities is one service for storage
// and execution, so it is left to the caller; see CacheCapabilities.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	repb.RegisterContentAddressableStorageServer(g, &storageService{s: s})
	repb.RegisterActionCacheServer(g, &actionService{s: s})
	g.RegisterService(ByteStreamDesc(), &byteStreamService{s: s})
}

// CacheCapabilities returns the Server's part of ServerCapabilities. The message is the caller's.
func (s *Server) CacheCapabilities() *repb.CacheCapabilities {
	c := &repb.CacheCapabilities{
		ActionCacheUpdateCapabilities: &repb.ActionCacheUpdateCapabilities{
			UpdateEnabled: s.options.AllowActionUpdates,
		},
		CachePriorityCapabilities: &repb.PriorityCapabilities{
			Priorities: []*repb.PriorityCapabilities_PriorityRange{{}},
		},
		MaxBatchTotalSizeBytes:          s.options.MaxBatchBytes,
		MaxCasBlobSizeBytes:             s.options.MaxBlobBytes,
		SymlinkAbsolutePathStrategy:     repb.SymlinkAbsolutePathStrategy_ALLOWED,
		SupportedCompressors:            []repb.Compressor_Value{repb.Compressor_ZSTD},
		SupportedBatchUpdateCompressors: []repb.Compressor_Value{repb.Compressor_ZSTD},
	}
	for _, fn := range digest.Functions() {
		c.DigestFunctions = append(c.DigestFunctions, fn.Proto())
	}
	return c
}

// request checks the common fields of requests.
func request(name string, fn repb.DigestFunction_Value) (digest.Function, error) {
	if err := instance.Check(name); err != nil {
		return 0, err
	}
	return digest.FunctionFromProto(fn)
}

// checkUploadSize refuses blobs beyond MaxBlobBytes, and those that can never fit in the Store.
func (s *Server) checkUploadSize(d digest.Digest) error {
	if limit := s.options.MaxBlobBytes; limit > 0 && d.SizeBytes() > limit {
		return status.Errorf(codes.InvalidArgument, "blob %s is larger than the limit of %d bytes", d, limit)
	}
	if err := s.store.Fits(d.SizeBytes()); err != nil {
		return fmt.Errorf("blob %s: %w", d, err)
	}
	return nil
}

// readStatus converts an error of reading into a gRPC status error.
func (s *Server) readStatus(err error) error { return s.statusOf(err, codes.DataLoss) }

// writeStatus converts an error of uploading into a gRPC status error.
func (s *Server) writeStatus(err error) error { return s.statusOf(err, codes.InvalidArgument) }

// statusOf converts err; nil stays nil. corrupt is the code for ErrCorrupt. The server's own faults
// are logged here, as the client cannot repair them. A size that no store of this limit could hold
// is the client's fault: any client can announce one as often as it likes.
func (s *Server) statusOf(err error, corrupt codes.Code) error {
	if err == nil {
		return nil
	}
	if st, ok := status.FromError(err); ok {
		return st.Err()
	}
	code := codes.Internal
	switch {
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, wire.ErrInvalidName), errors.Is(err, instance.ErrInvalid), errors.Is(err, digest.ErrInvalid),
		errors.Is(err, tree.ErrInvalid):
		code = codes.InvalidArgument
	case errors.Is(err, cas.ErrCorrupt):
		code = corrupt
	case errors.Is(err, cas.ErrNotFound):
		code = codes.NotFound
	case errors.As(err, new(*cas.NeverFitsError)):
		code = codes.InvalidArgument // clients retry RESOURCE_EXHAUSTED
	case errors.Is(err, cas.ErrNoSpace), errors.Is(err, cas.ErrTooManyHolders),
		errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		code = codes.ResourceExhausted
	case errors.Is(err, cas.ErrUnwritable), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		code = codes.Unavailable // it may be otherwise in a moment, or elsewhere
	}
	switch {
	case errors.As(err, new(*cas.NeverFitsError)):
		s.log.Debug("refused a blob that is larger than the store", zap.Error(err))
	case code == codes.Internal, code == codes.DataLoss, code == codes.ResourceExhausted, code == codes.Unavailable:
		s.log.Error("storage request failed", zap.Stringer("code", code), zap.Error(err))
	}
	return status.Error(code, err.Error())
}
