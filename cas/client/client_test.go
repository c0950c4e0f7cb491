package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// client returns a Client that does not waste a test's time between attempts.
func clientOf(f *servertest.Farm, o Options) *Client {
	c := New(f.Conn, o)
	c.link.firstPause = time.Millisecond
	return c
}

var (
	netSHA = digest.Of(digest.SHA256, []byte("abc"))
	netB3  = digest.Of(digest.BLAKE3, []byte("abc"))
)

// putAction stores an action and its command.
func putAction(t *testing.T, f *servertest.Farm, name string) digest.Digest {
	t.Helper()
	command := f.PutMessage(t, &repb.Command{Arguments: []string{name}})
	return f.PutMessage(t, &repb.Action{CommandDigest: command.Proto()})
}

// netBlobs makes blobs of all sizes that are treated differently.
func netBlobs(fn digest.Function) (map[digest.Digest][]byte, []digest.Digest) {
	blobs := map[digest.Digest][]byte{}
	var ds []digest.Digest
	sizes := []int{0, 1, wire.CompressAbove - 1, wire.CompressAbove, 999, 1000, 1001, wire.StreamChunk, cas.StreamAbove, cas.StreamAbove + 1, 3*cas.StreamAbove + 7}
	for i := range 100 {
		sizes = append(sizes, 10+i)
	}
	for i, n := range sizes {
		b := servertest.Bytes(uint64(i), n)
		d := digest.Of(fn, b)
		blobs[d] = b
		ds = append(ds, d, d)
	}
	return blobs, ds
}

func netSources(blobs map[digest.Digest][]byte) []Blob {
	var all []Blob
	for d, b := range blobs {
		all = append(all, BytesBlob(d, b))
	}
	return all
}

// failMethod makes one unary method fail.
func failMethod(method string, code codes.Code) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, r any, info *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
		if filepath.Base(info.FullMethod) == method {
			return nil, status.Error(code, "as the test wants")
		}
		return call(ctx, r)
	}
}

// TestClientRoundTrip uploads and downloads blobs with servers of different capabilities.
func TestClientRoundTrip(t *testing.T) {
	for what, c := range map[string]struct {
		server servertest.Config
		client Options
	}{
		"zstd":                   {},
		"no compression":         {client: Options{NoCompression: true}},
		"BLAKE3, instance":       {client: Options{Function: digest.BLAKE3, InstanceName: "a/b"}},
		"no Capabilities":        {server: servertest.Config{NoCapabilities: true}},
		"one at a time":          {client: Options{MaxConcurrent: 1}},
		"tiny batches":           {server: servertest.Config{Server: server.Options{MaxBatchBytes: 1000}}},
		"tiny batches, not said": {server: servertest.Config{Server: server.Options{MaxBatchBytes: 1000}, NoCapabilities: true}},
		"no BatchReadBlobs":      {server: servertest.Config{Unary: failMethod("BatchReadBlobs", codes.Unimplemented)}},
		"no BatchUpdateBlobs":    {server: servertest.Config{Unary: failMethod("BatchUpdateBlobs", codes.Unimplemented)}},
		"no QueryWriteStatus":    {server: servertest.Config{Unary: failMethod("QueryWriteStatus", codes.Unimplemented)}},
	} {
		t.Run(what, func(t *testing.T) {
			f := servertest.Start(t, c.server)
			client := clientOf(f, c.client)
			blobs, ds := netBlobs(client.fn)
			sent := map[digest.Digest]int64{}
			for range 2 {
				clear(sent)
				if err := client.Upload(t.Context(), netSources(blobs), func(d digest.Digest, n int64) {
					sent[d] += n
				}); err != nil {
					t.Fatal(err)
				}
				for d := range blobs {
					if sent[d] != d.SizeBytes() || !f.Store.Contains(d) {
						t.Errorf("%s: %d bytes reported, stored: %t", d, sent[d], f.Store.Contains(d))
					}
				}
			}
			var sink servertest.Sink
			if err := client.Fetch(t.Context(), ds, sink.Take); err != nil {
				t.Fatal(err)
			}
			sink.Check(t, blobs)
			for d, want := range blobs {
				if b, err := client.Read(t.Context(), d); err != nil || !bytes.Equal(b, want) {
					t.Errorf("read %s: %d bytes, %v", d, len(b), err)
				}
			}
		})
	}
}

func TestClientUploadsOnlyWhatIsMissing(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	there, file := []byte("there"), servertest.Bytes(1, 2*cas.StreamAbove)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	unread := Blob{Digest: f.Put(t, digest.SHA256, there), Open: func() (io.ReadCloser, error) {
		t.Error("what is there was opened")
		return nil, os.ErrInvalid
	}}
	d := digest.Of(digest.SHA256, file)
	if err := clientOf(f, Options{}).Upload(t.Context(), []Blob{unread, FileBlob(d, path)}, nil); err != nil {
		t.Error(err)
	}
	if b, err := f.Store.ReadBlob(t.Context(), d); err != nil || !bytes.Equal(b, file) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestClientUploadOfWrongSource(t *testing.T) {
	f := servertest.Start(t, servertest.Config{Server: server.Options{MaxBlobBytes: 3 * cas.StreamAbove}})
	client := clientOf(f, Options{})
	for _, n := range []int{1000, 2 * cas.StreamAbove} {
		b := servertest.Bytes(1, n)
		d := digest.Of(digest.SHA256, b)
		other := bytes.Clone(b)
		other[n/2]++
		for what, source := range map[string][]byte{"shorter": b[1:], "longer": append(other, 0), "other": other} {
			err := client.Upload(t.Context(), []Blob{BytesBlob(d, source)}, nil)
			if !errors.Is(err, cas.ErrCorrupt) || !bytes.Contains([]byte(err.Error()), []byte(d.Hash())) {
				t.Errorf("%s source of %d bytes: %v", what, n, err)
			}
		}
		err := client.Upload(t.Context(), []Blob{FileBlob(d, filepath.Join(t.TempDir(), "none"))}, nil)
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no source: %v", err)
		}
		if f.Store.Contains(d) {
			t.Error("stored what should not be")
		}
	}
	huge := servertest.Bytes(1, 3*cas.StreamAbove+1)
	if err := client.Upload(t.Context(), []Blob{BytesBlob(digest.Of(digest.SHA256, huge), huge)}, nil); err == nil {
		t.Error("a blob larger than the server allows was uploaded")
	}
}

func TestClientFindMissing(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	client := clientOf(f, Options{})
	var ds, want []digest.Digest
	for i := range maxDigestsPerCall + 100 {
		b := fmt.Append(nil, i)
		if i%1000 == 0 {
			ds = append(ds, f.Put(t, digest.SHA256, b), digest.SHA256.Empty())
			continue
		}
		d := digest.Of(digest.SHA256, b)
		ds = append(ds, d)
		want = append(want, d)
	}
	got, err := client.FindMissing(t.Context(), append(ds, ds...))
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d of %d are missing, %v", len(got), len(want), err)
	}
	if got, err := client.FindMissing(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for what, err := range map[string]error{
		"find":   second(client.FindMissing(t.Context(), []digest.Digest{netB3})),
		"read":   second(client.Read(t.Context(), netB3)),
		"result": second(client.GetActionResult(t.Context(), netB3)),
		"tree":   second(client.GetTree(t.Context(), netB3)),
		"zero":   second(client.Read(t.Context(), digest.Digest{})),
		"upload": client.Upload(t.Context(), []Blob{BytesBlob(netB3, []byte("abc"))}, nil),
	} {
		if !errors.Is(err, digest.ErrInvalid) {
			t.Errorf("%s with another function: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestClientFetchNamesAllThatIsMissing(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	blobs, ds := netBlobs(digest.SHA256)
	want := map[digest.Digest][]byte{}
	gone := map[digest.Digest]bool{}
	for d, b := range blobs {
		if d.SizeBytes()%2 == 0 && !d.IsEmptyBlob() {
			gone[d] = true
			continue
		}
		want[d] = b
		f.Put(t, digest.SHA256, b)
	}
	var sink servertest.Sink
	err := clientOf(f, Options{}).Fetch(t.Context(), ds, sink.Take)
	var missing *cas.MissingError
	if !errors.As(err, &missing) || !errors.Is(err, cas.ErrNotFound) || len(missing.Digests) != len(gone) {
		t.Fatalf("%v, want %d missing", err, len(gone))
	}
	for _, d := range missing.Digests {
		if !gone[d] {
			t.Errorf("%s is not missing", d)
		}
	}
	sink.Check(t, want)
}

func TestClientSinkErrorConcernsOneBlob(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	blobs, ds := netBlobs(digest.SHA256)
	for _, b := range blobs {
		f.Put(t, digest.SHA256, b)
	}
	full := errors.New("disk full")
	refuse := map[digest.Digest]bool{}
	want := maps.Clone(blobs)
	for d := range blobs {
		if n := d.SizeBytes(); n == 1 || n == cas.StreamAbove+1 {
			refuse[d] = true
			delete(want, d)
		}
	}
	var sink servertest.Sink
	err := clientOf(f, Options{}).Fetch(t.Context(), ds, func(d digest.Digest, r io.Reader) error {
		if refuse[d] {
			return full
		}
		return sink.Take(d, r)
	})
	if !errors.Is(err, full) || errors.Is(err, cas.ErrNotFound) {
		t.Errorf("%v", err)
	}
	sink.Check(t, want)

	// A sink that has the blob already need not read.
	if err := clientOf(f, Options{}).Fetch(t.Context(), ds, func(digest.Digest, io.Reader) error { return nil }); err != nil {
		t.Errorf("without reading: %v", err)
	}
}

func TestClientActionResults(t *testing.T) {
	f := servertest.Start(t, servertest.Config{Server: server.Options{AllowActionUpdates: true}})
	client := clientOf(f, Options{InstanceName: "one"})
	action := putAction(t, f, "a")
	if _, err := client.GetActionResult(t.Context(), action); !errors.Is(err, cas.ErrNotFound) || status.Code(err) != codes.NotFound {
		t.Errorf("before: %v", err)
	}
	if err := client.UpdateActionResult(t.Context(), action, &repb.ActionResult{StdoutRaw: []byte("seven")}); err != nil {
		t.Fatal(err)
	}
	if r, err := client.GetActionResult(t.Context(), action); err != nil || r.GetStdoutDigest().GetSizeBytes() != 5 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := client.WithInstance("two", digest.SHA256).GetActionResult(t.Context(), action); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("other instance: %v", err)
	}
	err := client.UpdateActionResult(t.Context(), netSHA, &repb.ActionResult{})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("result of an action that is not there: %v", err)
	}
}

// All calls together keep to MaxConcurrent.
func TestClientConcurrencyIsBounded(t *testing.T) {
	const bound = 3
	var mu sync.Mutex
	var now, most int
	exceeded := make(chan struct{})
	enter := func() {
		mu.Lock()
		defer mu.Unlock()
		now++
		if now > most {
			if most = now; most == bound+1 {
				close(exceeded)
			}
		}
	}
	leave := func() {
		mu.Lock()
		defer mu.Unlock()
		now--
	}
	f := servertest.Start(t, servertest.Config{
		Unary: func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
			enter()
			defer leave()
			select { // stay long enough to be met by a call too many
			case <-exceeded:
			case <-time.After(5 * time.Millisecond):
			}
			return call(ctx, r)
		},
		Server: server.Options{MaxBatchBytes: 1000},
	})
	client := clientOf(f, Options{MaxConcurrent: bound})
	blobs, ds := netBlobs(digest.SHA256)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := client.Upload(t.Context(), netSources(blobs), nil); err != nil {
				t.Error(err)
			}
			var sink servertest.Sink
			if err := client.Fetch(t.Context(), ds, sink.Take); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most > bound || len(client.link.slots) != 0 {
		t.Errorf("%d calls at once, %d slots kept", most, len(client.link.slots))
	}
}

func TestClientIsCancelled(t *testing.T) {
	entered := make(chan struct{}, 10)
	f := servertest.Start(t, servertest.Config{
		Unary: func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- second(clientOf(f, Options{}).Read(ctx, netSHA)) }()
	<-entered
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestInstanceNamesAreNotResolved: a right for "main/../other" is not a right for "other".
func TestInstanceNamesAreNotResolved(t *testing.T) {
	for _, test := range []struct{ prefix, name, want string }{
		{"", "", ""},
		{"main", "", "main"},
		{"", "a/b", "a/b"},
		{"main", "a/b", "main/a/b"},
		{"main", "../other", "main/../other"},
		{"", "a/../b", "a/../b"},
	} {
		c := New(nil, Options{InstancePrefix: test.prefix})
		if got := c.WithInstance(test.name, digest.SHA256).instance; got != test.want {
			t.Errorf("%q below %q: %q, want %q", test.name, test.prefix, got, test.want)
		}
	}
}
