package peer

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
)

func TestServerReadsOnly(t *testing.T) {
	f := startPeer(t, "here")
	storage, streams := repb.NewContentAddressableStorageClient(f.Conn), bytestream.NewByteStreamClient(f.Conn)
	ds := digestsOf("here", "not here", "")
	missing, err := storage.FindMissingBlobs(t.Context(), &repb.FindMissingBlobsRequest{BlobDigests: []*repb.Digest{ds[0].Proto(), ds[1].Proto(), ds[2].Proto()}})
	if err != nil || len(missing.GetMissingBlobDigests()) != 1 || missing.GetMissingBlobDigests()[0].GetHash() != ds[1].Hash() {
		t.Errorf("missing: %v, %v", missing, err)
	}
	read, err := streams.Read(t.Context(), &bytestream.ReadRequest{ResourceName: ds[0].BlobName(), ReadOffset: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := read.Recv(); string(r.GetData()) != "ere" || err != nil {
		t.Errorf("read %q, %v", r.GetData(), err)
	}
	_, update := storage.BatchUpdateBlobs(t.Context(), &repb.BatchUpdateBlobsRequest{Requests: []*repb.BatchUpdateBlobsRequest_Request{
		{Digest: ds[1].Proto(), Data: []byte("not here")},
	}})
	_, query := streams.QueryWriteStatus(t.Context(), &bytestream.QueryWriteStatusRequest{})
	write, err := streams.Write(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, written := write.CloseAndRecv()
	for what, err := range map[string]error{"update": update, "query": query, "write": written} {
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", what, err)
		}
	}
	if blobs, size := f.server.Served(); blobs != 1 || size != 4 || f.Store.Contains(ds[1]) {
		t.Errorf("peers read %d blobs, %d bytes", blobs, size)
	}
}

// Peers can read a blob when it is whole, and not before.
func TestServerHasNothingHalf(t *testing.T) {
	f := startPeer(t)
	whole := []byte("first half, second half")
	d := digest.Of(digest.SHA256, whole)
	reads := func() bool {
		t.Helper()
		var sink servertest.Sink
		c := f.peer.client
		_ = c.Fetch(t.Context(), []digest.Digest{d}, sink.Take)
		if b, ok := sink.Got[d]; ok && !bytes.Equal(b, whole) {
			t.Errorf("read %q", b)
		}
		return len(sink.Got) > 0
	}
	from, to := io.Pipe()
	stored := make(chan error, 1)
	go func() { stored <- f.Store.Put(t.Context(), d, from) }()
	_, _ = to.Write(whole[:10])
	if reads() {
		t.Error("half a blob was read")
	}
	_, _ = to.Write(whole[10:])
	_ = to.Close()
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	if !reads() {
		t.Error("the blob cannot be read")
	}
}

// Reads by peers do not count as uses.
func TestReadsByPeersAreNoUse(t *testing.T) {
	f := startPeer(t)
	var err error
	f.Store, err = disk.Open(t.TempDir(), disk.Options{MaxBytes: 30})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Store.Close()
	l := f.Store.Peek(func(digest.Digest) {})
	var ds []digest.Digest
	for _, text := range []string{"0123456789", "abcdefghij", "ABCDEFGHIJ"} {
		ds = append(ds, f.Put(t, digest.SHA256, []byte(text)))
	}
	if _, err := l.FindMissing(t.Context(), ds); err != nil {
		t.Fatal(err)
	}
	if b, err := l.ReadBlob(t.Context(), ds[0]); string(b) != "0123456789" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	file, err := l.OpenBlob(t.Context(), ds[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f.Put(t, digest.SHA256, []byte("one more, "))
	for i, d := range ds {
		if f.Store.Has(d) != (i > 0) {
			t.Errorf("blob %d is there: %t", i, i == 0)
		}
	}
	// A reader that had begun continues.
	if b, err := io.ReadAll(file); string(b) != "0123456789" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

func TestServerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startPeer(t, "here")
		ask := func() error {
			_, err := (&storageService{s: f.server}).BatchReadBlobs(t.Context(), &repb.BatchReadBlobsRequest{})
			return err
		}
		var ends []func()
		for range maxCalls {
			end, err := f.server.begin()
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		if err := ask(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one too many: %v", err)
		}
		c := startPeers(t, []string{"here"}, f)
		c.fetch(t, 0)
		for _, end := range ends {
			end()
		}
		if err := ask(); err != nil {
			t.Error(err)
		}
	})
}
