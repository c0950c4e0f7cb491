package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// The named bounds of Client.
const (
	// maxReceiveBytes bounds one message from the server; a GetTree answer may
	// hold a directory of 100,000 files.
	maxReceiveBytes = 64 << 20
	// maxDigestsPerCall keeps a FindMissingBlobs below 2 MiB.
	maxDigestsPerCall = 20000
)

// Options are the options of a Client. Zero values mean the defaults.
type Options struct {
	InstanceName string
	// InstancePrefix is put before every instance name.
	InstancePrefix string
	// ActionCache is the connection to the action cache. Nil is the connection to the blobs.
	ActionCache grpc.ClientConnInterface
	Function    digest.Function // default SHA-256
	Logger      *zap.Logger
	// MaxConcurrent bounds the calls in flight, over all that share the Client;
	// default 40. At most three quarters of them are downloads of large blobs, and
	// at most three fifths are downloads of a Client that stands behind (Behind).
	MaxConcurrent int
	// RetryFor is how long a call is retried without any progress; default 2 minutes.
	RetryFor time.Duration
	// StallAfter is the time without data from the server after which an attempt is aborted;
	// default 1 minute.
	StallAfter time.Duration
	// BatchBytes is the server's batch limit, if it is known: then the Client does not request the
	// server's capabilities, and compresses nothing. 0 requests them.
	BatchBytes int64
	// NoCompression disables zstd even if the server offers it, for networks that are faster than
	// the compressor.
	NoCompression bool
}

func (o *Options) validate() {
	if o.Function == 0 {
		o.Function = digest.SHA256
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	o.InstanceName = instance.Join(o.InstancePrefix, o.InstanceName)
	if o.MaxConcurrent <= 0 {
		o.MaxConcurrent = 40
	}
	if o.RetryFor <= 0 {
		o.RetryFor = 2 * time.Minute
	}
	if o.StallAfter <= 0 {
		o.StallAfter = time.Minute
	}
}

// A Client reads and writes REv2 storage. It may be used concurrently, and needs no closing; the
// connection is the caller's. All its goroutines end before the call that started them returns.
//
// It verifies every blob that it passes on: one that does not match its digest is ErrCorrupt. Calls
// are retried, with growing pauses, while the server is overloaded or down. Every digest must be of
// the Client's function. Errors of the server keep their status (status.FromError).
type Client struct {
	link     *link
	instance string
	fn       digest.Function
	behind   bool // its downloads take a token of link.behind first
}

var (
	_ cas.Fetcher        = (*Client)(nil)
	_ cas.RangeFetcher   = (*Client)(nil)
	_ cas.PatientFetcher = (*Client)(nil)
)

// A link is shared by Clients of several instance names.
type link struct {
	storage      repb.ContentAddressableStorageClient
	actions      repb.ActionCacheClient
	streams      bytestream.ByteStreamClient
	capabilities repb.CapabilitiesClient
	options      Options
	log          *zap.Logger
	decoder      *zstd.Decoder
	encoder      *zstd.Encoder

	// slots holds one token for each call in flight. A download of a large blob
	// takes a token of downloads first, which are fewer, so that small blobs never
	// wait behind large ones.
	slots, downloads chan struct{}
	// behind holds one token for each download of a Client that stands behind: they wait for each
	// other, so that the others need not wait for them.
	behind chan struct{}
	// asking is held while the capabilities are asked for.
	asking  chan struct{}
	known   atomic.Pointer[limits]
	refusal refusal
	// readings are the calls of Read for small blobs.
	readings readings
	// firstPause is the pause before the second attempt.
	firstPause time.Duration
	troubles   troubles
}

// limits are derived from the server's capabilities.
type limits struct {
	batchBytes   int64
	maxBlobBytes int64 // 0: none
	zstdStreams  bool
	zstdUpdates  bool
}

// New returns a Client for the storage at conn. It does not contact the server; the first call
// requests the capabilities.
func New(conn grpc.ClientConnInterface, o Options) *Client {
	o.validate()
	if o.ActionCache == nil {
		o.ActionCache = conn
	}
	l := &link{
		storage:      repb.NewContentAddressableStorageClient(conn),
		actions:      repb.NewActionCacheClient(o.ActionCache),
		streams:      bytestream.NewByteStreamClient(conn),
		capabilities: repb.NewCapabilitiesClient(conn),
		options:      o,
		log:          o.Logger,
		decoder:      wire.NewBatchDecoder(),
		encoder:      wire.NewBatchEncoder(),
		slots:        make(chan struct{}, o.MaxConcurrent),
		downloads:    make(chan struct{}, max(1, o.MaxConcurrent*3/4)),
		behind:       make(chan struct{}, max(1, o.MaxConcurrent*3/5)),
		asking:       make(chan struct{}, 1),
		firstPause:   100 * time.Millisecond,
	}
	if o.BatchBytes > 0 {
		l.known.Store(&limits{batchBytes: o.BatchBytes})
	}
	return &Client{link: l, instance: o.InstanceName, fn: o.Function}
}

// Function returns the digest function of c.
func (c *Client) Function() digest.Function { return c.fn }

// InstanceName returns the instance name of c as sent to the server, including
// Options.InstancePrefix.
func (c *Client) InstanceName() string { return c.instance }

// WithInstance returns a Client for another instance name and digest function on
// the same connection, under the same bound on calls. It takes the server's
// limits to be the same for all instance names.
func (c *Client) WithInstance(name string, fn digest.Function) *Client {
	return &Client{link: c.link, instance: instance.Join(c.link.options.InstancePrefix, name), fn: fn, behind: c.behind}
}

// Behind implements PatientFetcher: at most three fifths of the calls that may be in
// flight, and at least one, are downloads of Clients that it returns.
func (c *Client) Behind() cas.Fetcher {
	return &Client{link: c.link, instance: c.instance, fn: c.fn, behind: true}
}

// callOptions go with every call.
func callOptions() []grpc.CallOption {
	return []grpc.CallOption{grpc.MaxCallRecvMsgSize(maxReceiveBytes), grpc.MaxCallSendMsgSize(maxReceiveBytes)}
}

// turn waits, if c stands behind, until there is room for its download; the
// caller gives it back. It comes before slot and downloadSlot.
func (c *Client) turn(ctx context.Context) (release func(), err error) {
	if !c.behind {
		return func() {}, nil
	}
	select {
	case c.link.behind <- struct{}{}:
		return func() { <-c.link.behind }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// slot waits until a call may be made; the caller gives the slot back.
func (l *link) slot(ctx context.Context) (release func(), err error) {
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// downloadSlot is turn and slot for a call that may take long.
func (c *Client) downloadSlot(ctx context.Context) (release func(), err error) {
	yield, err := c.turn(ctx)
	if err != nil {
		return nil, err
	}
	l := c.link
	select {
	case l.downloads <- struct{}{}:
	case <-ctx.Done():
		yield()
		return nil, ctx.Err()
	}
	give, err := l.slot(ctx)
	if err != nil {
		<-l.downloads
		yield()
		return nil, err
	}
	return func() { give(); <-l.downloads; yield() }, nil
}

// limits requests the server's capabilities, the first time.
func (c *Client) limits(ctx context.Context) (limits, error) {
	l := c.link
	if known := l.known.Load(); known != nil {
		return *known, nil
	}
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return limits{}, ctx.Err()
	}
	if known := l.known.Load(); known != nil {
		return *known, nil
	}
	var answer *repb.ServerCapabilities
	err := l.retry(ctx, func(ctx context.Context) (err error) {
		r := &repb.GetCapabilitiesRequest{InstanceName: c.instance}
		answer, err = l.capabilities.GetCapabilities(ctx, r, callOptions()...)
		return err
	})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return limits{}, fmt.Errorf("get capabilities of storage: %w", err)
	}
	known := limitsOf(answer.GetCacheCapabilities(), !l.options.NoCompression)
	l.known.Store(&known)
	return known, nil
}

// limitsOf interprets c; nil is a server without capabilities.
func limitsOf(c *repb.CacheCapabilities, compress bool) limits {
	known := limits{batchBytes: cas.BatchBytes, maxBlobBytes: max(c.GetMaxCasBlobSizeBytes(), 0)}
	if n := c.GetMaxBatchTotalSizeBytes(); n > 0 {
		known.batchBytes = min(known.batchBytes, n)
	}
	for _, z := range c.GetSupportedCompressors() {
		known.zstdStreams = known.zstdStreams || compress && z == repb.Compressor_ZSTD
	}
	for _, z := range c.GetSupportedBatchUpdateCompressors() {
		known.zstdUpdates = known.zstdUpdates || compress && z == repb.Compressor_ZSTD
	}
	return known
}

// unique drops repeated digests, and fails for digests of another function.
func (c *Client) unique(ds []digest.Digest) ([]digest.Digest, error) {
	seen := make(map[digest.Digest]struct{}, len(ds))
	out := make([]digest.Digest, 0, len(ds))
	for _, d := range ds {
		if d.Function() != c.fn {
			return nil, fmt.Errorf("%w: %s is a digest of %s, this client is for %s",
				digest.ErrInvalid, d, d.Function(), c.fn)
		}
		if _, twice := seen[d]; !twice {
			seen[d] = struct{}{}
			out = append(out, d)
		}
	}
	return out, nil
}

// FindMissing returns which of ds the server does not have, without repetition
// and in their order. The empty blob is never missing.
func (c *Client) FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	ds, err := c.unique(ds)
	if err != nil {
		return nil, fmt.Errorf("find missing blobs: %w", err)
	}
	parts := make([]map[digest.Digest]struct{}, (len(ds)+maxDigestsPerCall-1)/maxDigestsPerCall)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.link.options.MaxConcurrent)
	for i := range parts {
		part := ds[i*maxDigestsPerCall : min((i+1)*maxDigestsPerCall, len(ds))]
		g.Go(func() (err error) {
			parts[i], err = c.findMissing(gctx, part)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("find missing blobs: %w", err)
	}
	var missing []digest.Digest
	for i, d := range ds {
		if _, ok := parts[i/maxDigestsPerCall][d]; ok {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

func (c *Client) findMissing(ctx context.Context, ds []digest.Digest) (map[digest.Digest]struct{}, error) {
	r := &repb.FindMissingBlobsRequest{InstanceName: c.instance, DigestFunction: c.fn.Proto()}
	for _, d := range ds {
		if !d.IsEmptyBlob() {
			r.BlobDigests = append(r.BlobDigests, d.Proto())
		}
	}
	if len(r.BlobDigests) == 0 {
		return nil, nil
	}
	var answer *repb.FindMissingBlobsResponse
	if err := c.link.retry(ctx, func(ctx context.Context) (err error) {
		answer, err = c.link.storage.FindMissingBlobs(ctx, r, callOptions()...)
		return err
	}); err != nil {
		return nil, err
	}
	missing := make(map[digest.Digest]struct{}, len(answer.GetMissingBlobDigests()))
	for _, m := range answer.GetMissingBlobDigests() {
		d, err := digest.FromProto(c.fn, m)
		if err != nil {
			return nil, fmt.Errorf("answer of the server: %w", err)
		}
		missing[d] = struct{}{}
	}
	return missing, nil
}
