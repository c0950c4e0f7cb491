package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/rpctest"
)

const netTestUUID = "3d1a3c1e-5a3f-4d5f-9c80-0123456789ab"

var (
	netSHA = digest.Of(digest.SHA256, []byte("abc"))
	netB3  = digest.Of(digest.BLAKE3, []byte("abc"))
)

// netConfig configures the server of a test. The interceptors inject faults.
type netConfig struct {
	dir            string       // of the store; one of its own if empty
	store          disk.Options // a zero MaxBytes is 256 MiB
	server         Options
	unary          grpc.UnaryServerInterceptor
	stream         grpc.StreamServerInterceptor
	noCapabilities bool
	capabilities   *repb.CacheCapabilities // other than the server's own
}

// A netFarm is a server over a fresh store, and a connection to it.
type netFarm struct {
	store   *disk.Store
	server  *Server
	conn    *grpc.ClientConn
	cas     repb.ContentAddressableStorageClient
	actions repb.ActionCacheClient
	streams bytestream.ByteStreamClient
}

type netCapabilities struct {
	repb.UnimplementedCapabilitiesServer
	cache *repb.CacheCapabilities
}

func (c *netCapabilities) GetCapabilities(
	context.Context, *repb.GetCapabilitiesRequest,
) (*repb.ServerCapabilities, error) {
	return &repb.ServerCapabilities{CacheCapabilities: c.cache}, nil
}

func netStart(t testing.TB, c netConfig) *netFarm {
	t.Helper()
	if c.dir == "" {
		c.dir = filepath.Join(t.TempDir(), "blobs")
	}
	if c.store.MaxBytes == 0 {
		c.store.MaxBytes = 256 << 20
	}
	store, err := disk.Open(c.dir, c.store)
	if err != nil {
		t.Fatal(err)
	}
	actions, err := disk.OpenActions(filepath.Join(t.TempDir(), "actions"), disk.ActionsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := &netFarm{store: store, server: New(store, actions, c.server)}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(MaxMessageBytes)}
	if c.unary != nil {
		options = append(options, grpc.UnaryInterceptor(c.unary))
	}
	if c.stream != nil {
		options = append(options, grpc.StreamInterceptor(c.stream))
	}
	g := grpc.NewServer(options...)
	f.server.Register(g)
	if c.capabilities == nil {
		c.capabilities = f.server.CacheCapabilities()
	}
	if !c.noCapabilities {
		repb.RegisterCapabilitiesServer(g, &netCapabilities{cache: c.capabilities})
	}
	t.Cleanup(func() {
		if err := errors.Join(actions.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	f.conn = rpctest.Serve(t, g)
	f.cas = repb.NewContentAddressableStorageClient(f.conn)
	f.actions = repb.NewActionCacheClient(f.conn)
	f.streams = bytestream.NewByteStreamClient(f.conn)
	return f
}

// put stores b on the server's side.
func (f *netFarm) put(t testing.TB, fn digest.Function, b []byte) digest.Digest {
	t.Helper()
	d := digest.Of(fn, b)
	if err := f.store.PutBytes(t.Context(), d, b); err != nil {
		t.Fatal(err)
	}
	return d
}

func (f *netFarm) putMessage(t *testing.T, m proto.Message) digest.Digest {
	t.Helper()
	d, b, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	return f.put(t, d.Function(), b)
}

// netBytes returns n bytes, most of them compressible, that differ for each seed.
func netBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b[:n/8])
	for i := n / 8; i < n; i++ {
		b[i] = byte(i >> 6)
	}
	return b
}

func netCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

func netZstd(t *testing.T, b []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return e.EncodeAll(b, nil)
}

func netUnzstd(t *testing.T, b []byte) []byte {
	t.Helper()
	d, err := zstd.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out, err := io.ReadAll(d)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestServerCapabilities(t *testing.T) {
	f := netStart(t, netConfig{server: Options{AllowActionUpdates: true, MaxBatchBytes: 1000, MaxBlobBytes: 7}})
	c := f.server.CacheCapabilities()
	if !c.GetActionCacheUpdateCapabilities().GetUpdateEnabled() || c.GetMaxBatchTotalSizeBytes() != 1000 ||
		c.GetMaxCasBlobSizeBytes() != 7 || len(c.GetDigestFunctions()) != 2 ||
		c.GetSplitBlobSupport() || c.GetSpliceBlobSupport() || len(c.GetCachePriorityCapabilities().GetPriorities()) != 1 ||
		c.GetSymlinkAbsolutePathStrategy() != repb.SymlinkAbsolutePathStrategy_ALLOWED {
		t.Errorf("capabilities: %v", c)
	}
	_, err := f.cas.SplitBlob(t.Context(), &repb.SplitBlobRequest{BlobDigest: netSHA.Proto()})
	netCode(t, "SplitBlob", err, codes.Unimplemented)
	_, err = f.cas.SpliceBlob(t.Context(), &repb.SpliceBlobRequest{BlobDigest: netSHA.Proto()})
	netCode(t, "SpliceBlob", err, codes.Unimplemented)
}

func TestServerFindMissingBlobs(t *testing.T) {
	f := netStart(t, netConfig{})
	for _, fn := range digest.Functions() {
		there := f.put(t, fn, []byte("there"))
		gone := digest.Of(fn, []byte("gone"))
		r, err := f.cas.FindMissingBlobs(t.Context(), &repb.FindMissingBlobsRequest{
			InstanceName:   "a/b",
			DigestFunction: fn.Proto(),
			BlobDigests:    []*repb.Digest{gone.Proto(), {}, there.Proto(), fn.Empty().Proto(), gone.Proto()},
		})
		if err != nil || len(r.GetMissingBlobDigests()) != 1 || r.GetMissingBlobDigests()[0].GetHash() != gone.Hash() {
			t.Errorf("%s: %v, %v", fn, r, err)
		}
	}
	good := netSHA.Proto()
	for what, r := range map[string]*repb.FindMissingBlobsRequest{
		"reserved instance": {InstanceName: "a/blobs"},
		"slash at the end":  {InstanceName: "a/"},
		"dots":              {InstanceName: "a/../b"},
		"no hash":           {BlobDigests: []*repb.Digest{good, {SizeBytes: 1}}},
		"short hash":        {BlobDigests: []*repb.Digest{{Hash: "abc", SizeBytes: 3}}},
		"upper-case hash":   {BlobDigests: []*repb.Digest{{Hash: strings.ToUpper(good.GetHash()), SizeBytes: 3}}},
		"negative size":     {BlobDigests: []*repb.Digest{{Hash: good.GetHash(), SizeBytes: -1}}},
		"MD5":               {BlobDigests: []*repb.Digest{good}, DigestFunction: repb.DigestFunction_MD5},
	} {
		_, err := f.cas.FindMissingBlobs(t.Context(), r)
		netCode(t, what, err, codes.InvalidArgument)
	}
}

func TestServerBatches(t *testing.T) {
	f := netStart(t, netConfig{server: Options{MaxBatchBytes: 100_000, MaxBlobBytes: 50_000}})
	large, tooLarge := netBytes(1, 30_000), netBytes(2, 50_001)
	type entry = repb.BatchUpdateBlobsRequest_Request
	abc, b3abc := []byte("abc"), digest.Of(digest.BLAKE3, []byte("abc"))
	largeDigest := digest.Of(digest.SHA256, large)
	for _, c := range []struct {
		what string
		fn   digest.Function
		e    *entry
		want codes.Code
	}{
		{"plain", digest.SHA256, &entry{Digest: netSHA.Proto(), Data: abc}, codes.OK},
		{"again", digest.SHA256, &entry{Digest: netSHA.Proto(), Data: abc}, codes.OK},
		{"BLAKE3", digest.BLAKE3, &entry{Digest: b3abc.Proto(), Data: abc}, codes.OK},
		{"empty", digest.BLAKE3, &entry{Digest: digest.BLAKE3.Empty().Proto()}, codes.OK},
		{"zstd", digest.SHA256, &entry{
			Digest: largeDigest.Proto(), Data: netZstd(t, large), Compressor: repb.Compressor_ZSTD,
		}, codes.OK},
		{"bad zstd", digest.SHA256, &entry{
			Digest: largeDigest.Proto(), Data: abc, Compressor: repb.Compressor_ZSTD,
		}, codes.InvalidArgument},
		{"zstd bomb", digest.SHA256, &entry{
			Digest: netSHA.Proto(), Data: netZstd(t, make([]byte, 10<<20)), Compressor: repb.Compressor_ZSTD,
		}, codes.InvalidArgument},
		{"deflate", digest.SHA256, &entry{
			Digest: netSHA.Proto(), Data: abc, Compressor: repb.Compressor_DEFLATE,
		}, codes.InvalidArgument},
		{"other function", digest.SHA256, &entry{Digest: b3abc.Proto(), Data: abc}, codes.InvalidArgument},
		{"wrong hash", digest.SHA256, &entry{Digest: netSHA.Proto(), Data: []byte("abd")}, codes.InvalidArgument},
		{"wrong size", digest.SHA256, &entry{
			Digest: &repb.Digest{Hash: netSHA.Hash(), SizeBytes: 4}, Data: abc,
		}, codes.InvalidArgument},
		{"no digest", digest.SHA256, &entry{Data: abc}, codes.InvalidArgument},
		{"larger than allowed", digest.SHA256, &entry{
			Digest: digest.Of(digest.SHA256, tooLarge).Proto(), Data: tooLarge,
		}, codes.InvalidArgument},
	} {
		r, err := f.cas.BatchUpdateBlobs(t.Context(), &repb.BatchUpdateBlobsRequest{
			Requests: []*entry{c.e, {Digest: c.fn.Empty().Proto()}}, DigestFunction: c.fn.Proto(),
		})
		if err != nil || len(r.GetResponses()) != 2 || r.GetResponses()[1].GetStatus().GetCode() != 0 {
			t.Errorf("%s: %v, %v", c.what, r, err)
			continue
		}
		if got := codes.Code(r.GetResponses()[0].GetStatus().GetCode()); got != c.want {
			t.Errorf("%s: %v, want %s", c.what, r.GetResponses()[0].GetStatus(), c.want)
		}
	}

	gone := digest.Of(digest.SHA256, []byte("gone"))
	for _, z := range [][]repb.Compressor_Value{nil, {repb.Compressor_ZSTD}} {
		r, err := f.cas.BatchReadBlobs(t.Context(), &repb.BatchReadBlobsRequest{
			Digests: []*repb.Digest{
				netSHA.Proto(), gone.Proto(), digest.SHA256.Empty().Proto(), nil, largeDigest.Proto(),
			},
			AcceptableCompressors: z,
		})
		if err != nil {
			t.Fatal(err)
		}
		got := r.GetResponses()
		for i, want := range []codes.Code{codes.OK, codes.NotFound, codes.OK, codes.InvalidArgument, codes.OK} {
			if codes.Code(got[i].GetStatus().GetCode()) != want {
				t.Errorf("blob %d: %v, want %s", i, got[i].GetStatus(), want)
			}
		}
		data := got[4].GetData()
		if (got[4].GetCompressor() == repb.Compressor_ZSTD) != (z != nil) {
			t.Errorf("asked for %v, got %s", z, got[4].GetCompressor())
		}
		if z != nil {
			data = netUnzstd(t, data)
		}
		if string(got[0].GetData()) != "abc" || len(got[2].GetData()) > 0 || !bytes.Equal(data, large) {
			t.Error("wrong data")
		}
	}
}

func TestServerBatchLimit(t *testing.T) {
	f := netStart(t, netConfig{server: Options{MaxBatchBytes: 1000}})
	a, b := netBytes(1, 500), netBytes(2, 501)
	da, db := digest.Of(digest.SHA256, a), digest.Of(digest.SHA256, b)
	huge := &repb.Digest{Hash: netSHA.Hash(), SizeBytes: math.MaxInt64}
	_, err := f.cas.BatchReadBlobs(t.Context(), &repb.BatchReadBlobsRequest{Digests: []*repb.Digest{da.Proto(), db.Proto()}})
	netCode(t, "read", err, codes.InvalidArgument)
	_, err = f.cas.BatchReadBlobs(t.Context(), &repb.BatchReadBlobsRequest{
		Digests: []*repb.Digest{huge, huge, huge, huge},
	})
	netCode(t, "read of huge digests", err, codes.InvalidArgument)
	_, err = f.cas.BatchUpdateBlobs(t.Context(), &repb.BatchUpdateBlobsRequest{
		Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: da.Proto(), Data: a}, {Digest: db.Proto(), Data: b}},
	})
	netCode(t, "update", err, codes.InvalidArgument)
	if f.store.Contains(da) {
		t.Error("a part of a refused batch was stored")
	}
	_, err = f.cas.BatchUpdateBlobs(t.Context(), &repb.BatchUpdateBlobsRequest{
		Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: huge, Data: a, Compressor: repb.Compressor_ZSTD}},
	})
	netCode(t, "update that claims to grow", err, codes.InvalidArgument)
}

// TestImpossibleSizesAreNotErrorsOfOurs: impossible sizes are refused as the client's error, and
// are not logged as errors for the operator.
func TestImpossibleSizesAreNotErrorsOfOurs(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	f := netStart(t, netConfig{store: disk.Options{MaxBytes: 1 << 20}, server: Options{Logger: zap.New(core)}})
	hash := digest.Of(digest.SHA256, []byte("x")).Hash()
	for _, size := range []int64{1<<20 + 1, 1 << 40, digest.MaxSizeBytes} {
		name := fmt.Sprintf("uploads/0b3c7a3c-6a0d-4a4c-8f4b-3c4c3f0a9d11/blobs/%s/%d", hash, size)
		stream, err := f.streams.Write(t.Context())
		if err == nil {
			_ = stream.Send(&bytestream.WriteRequest{ResourceName: name, Data: []byte("x")}) // CloseAndRecv has its error
			_, err = stream.CloseAndRecv()
		}
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "larger than all of the store") {
			t.Errorf("an upload of %d bytes: %v", size, err)
		}
		d := &repb.Digest{Hash: hash, SizeBytes: size}
		missing, err := f.cas.FindMissingBlobs(t.Context(), &repb.FindMissingBlobsRequest{BlobDigests: []*repb.Digest{d}})
		if err != nil || len(missing.GetMissingBlobDigests()) != 1 {
			t.Errorf("%d bytes are not missing: %v, %v", size, missing, err)
		}
		_, err = f.cas.BatchUpdateBlobs(t.Context(), &repb.BatchUpdateBlobsRequest{
			Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: d, Data: []byte("x")}},
		})
		if err == nil && size > f.server.options.MaxBatchBytes {
			t.Errorf("a batch with %d bytes is taken", size)
		}
		read, err := f.streams.Read(t.Context(), &bytestream.ReadRequest{ResourceName: fmt.Sprintf("blobs/%s/%d", hash, size)})
		if err == nil {
			_, err = read.Recv()
		}
		if status.Code(err) != codes.NotFound {
			t.Errorf("a read of %d bytes: %v", size, err)
		}
	}
	for _, entry := range logs.All() {
		t.Errorf("logged: %s %s %v", entry.Level, entry.Message, entry.ContextMap())
	}
}
