package cas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// rotReadStream reads a resource whole and returns its bytes and the code at the end.
func rotReadStream(t *testing.T, conn grpc.ClientConnInterface, name string) ([]byte, codes.Code) {
	t.Helper()
	stream, err := bytestream.NewByteStreamClient(conn).Read(t.Context(), &bytestream.ReadRequest{ResourceName: name})
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, codes.OK
		}
		if err != nil {
			return all, status.Code(err)
		}
		all = append(all, r.GetData()...)
	}
}

// TestServerNeverReadsOutRot: whichever way a damaged blob is read, the bytes do not come
// with OK, it is missing from then on, and an upload heals it.
func TestServerNeverReadsOutRot(t *testing.T) {
	f := netStart(t, netConfig{})
	lent := netServe(t, func() *grpc.Server {
		g := grpc.NewServer()
		NewLender(f.store, nil).Register(g)
		return g
	}())
	ways := map[string]func(t *testing.T, d digest.Digest) codes.Code{}
	stream := func(conn grpc.ClientConnInterface, format string) func(*testing.T, digest.Digest) codes.Code {
		return func(t *testing.T, d digest.Digest) codes.Code {
			got, code := rotReadStream(t, conn, fmt.Sprintf(format, d.Hash(), d.SizeBytes()))
			if int64(len(got)) >= d.SizeBytes() {
				t.Errorf("%d bytes came", len(got))
			}
			return code
		}
	}
	batch := func(conn grpc.ClientConnInterface) func(t *testing.T, d digest.Digest) codes.Code {
		return func(t *testing.T, d digest.Digest) codes.Code {
			r, err := repb.NewContentAddressableStorageClient(conn).BatchReadBlobs(t.Context(),
				&repb.BatchReadBlobsRequest{Digests: []*repb.Digest{d.Proto()}})
			if err != nil {
				return status.Code(err)
			}
			if len(r.GetResponses()[0].GetData()) > 0 {
				t.Error("bytes came")
			}
			return codes.Code(r.GetResponses()[0].GetStatus().GetCode())
		}
	}
	ways["stream"], ways["lent stream"] = stream(f.conn, "blobs/%s/%d"), stream(lent, "blobs/%s/%d")
	ways["zstd"] = stream(f.conn, "compressed-blobs/zstd/%s/%d")
	ways["batch"], ways["lent batch"] = batch(f.conn), batch(lent)
	for way, read := range ways {
		for _, size := range []int{1, 1000, streamChunk, streamChunk + 1, 3 * streamChunk} {
			for what, damage := range map[string]func(testing.TB, *Store, digest.Digest){
				"rot": rot, "silent rot": rotSilently,
				"short": func(t testing.TB, s *Store, d digest.Digest) {
					if err := os.Truncate(s.files.path(d), d.SizeBytes()-1); err != nil {
						t.Fatal(err)
					}
				},
			} {
				t.Run(fmt.Sprint(way, size, what), func(t *testing.T) {
					b := netBytes(uint64(size), size)
					d := f.put(t, digest.SHA256, b)
					damage(t, f.store, d)
					if code := read(t, d); code != codes.NotFound {
						t.Errorf("read: %s", code)
					}
					missing, err := f.store.FindMissing(t.Context(), []digest.Digest{d})
					if what == "short" && way[:4] == "lent" {
						return // a peek leaves no trace
					}
					if err != nil || len(missing) != 1 {
						t.Errorf("missing %v, %v", missing, err)
					}
					if got := storeText(f.store, f.put(t, digest.SHA256, b)); got != string(b) {
						t.Error("an upload does not heal it")
					}
				})
			}
		}
	}
}

// TestServerReadsOutWhatIsRight: the end that is kept back comes.
func TestServerReadsOutWhatIsRight(t *testing.T) {
	f := netStart(t, netConfig{})
	for _, size := range []int{1, 1000, streamChunk - 1, streamChunk, streamChunk + 1, 2 * streamChunk, 3*streamChunk + 7} {
		b := netBytes(uint64(size), size)
		d := f.put(t, digest.BLAKE3, b)
		got, code := rotReadStream(t, f.conn, fmt.Sprintf("blobs/blake3/%s/%d", d.Hash(), size))
		if code != codes.OK || !bytes.Equal(got, b) {
			t.Errorf("%d bytes: %d came, %s", size, len(got), code)
		}
		forget(t, f.store, d)
		got, code = rotReadStream(t, f.conn, fmt.Sprintf("compressed-blobs/zstd/blake3/%s/%d", d.Hash(), size))
		if code != codes.OK || !bytes.Equal(netUnzstd(t, got), b) {
			t.Errorf("%d bytes compressed: %d came, %s", size, len(got), code)
		}
		if !f.store.unchanged(version{d, f.store.files.index.lookup(d).generation}) {
			t.Error("a whole read is no verification")
		}
	}
}

// TestUploadsHealWhatIsNotVouchedFor: an upload of a blob that is there but wrong is not
// answered unread.
func TestUploadsHealWhatIsNotVouchedFor(t *testing.T) {
	text := bytes.Repeat([]byte("text "), 100_000)
	d := digest.Of(digest.SHA256, text)
	ways := map[string]func(ctx context.Context, f *netFarm) error{
		"PutBytes": func(ctx context.Context, f *netFarm) error { return f.store.PutBytes(ctx, d, text) },
		"Put":      func(ctx context.Context, f *netFarm) error { return f.store.Put(ctx, d, bytes.NewReader(text)) },
		"Take": func(ctx context.Context, f *netFarm) error {
			path := f.store.TempDir() + "/output"
			if err := os.WriteFile(path, text, 0o600); err != nil {
				return err
			}
			_, err := f.store.Take(ctx, path, d.Function())
			return err
		},
		"TakeCopy": func(ctx context.Context, f *netFarm) error {
			path := f.store.TempDir() + "/output"
			if err := os.WriteFile(path, text, 0o600); err != nil {
				return err
			}
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			_, err = f.store.TakeCopy(ctx, file, d.Function())
			return errors.Join(err, file.Close(), os.Remove(path))
		},
		"batch": func(ctx context.Context, f *netFarm) error {
			r, err := repb.NewContentAddressableStorageClient(f.conn).BatchUpdateBlobs(ctx,
				&repb.BatchUpdateBlobsRequest{Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: d.Proto(), Data: text}}})
			if err == nil {
				err = status.ErrorProto(r.GetResponses()[0].GetStatus())
			}
			return err
		},
		"stream": func(ctx context.Context, f *netFarm) error {
			stream, err := bytestream.NewByteStreamClient(f.conn).Write(ctx)
			if err == nil {
				err = stream.Send(&bytestream.WriteRequest{
					ResourceName: fmt.Sprintf("uploads/6b8c4a1e-0000-4000-8000-000000000000/blobs/%s/%d", d.Hash(), d.SizeBytes()),
					Data:         text, FinishWrite: true,
				})
			}
			if err == nil {
				_, err = stream.CloseAndRecv()
			}
			return err
		},
	}
	for way, upload := range ways {
		for what, damage := range map[string]func(testing.TB, *Store, digest.Digest){
			"changed": rot,
			"stale":   func(t testing.TB, s *Store, d digest.Digest) { rotSilently(t, s, d); forget(t, s, d) },
			"fine":    forget,
		} {
			t.Run(way+" "+what, func(t *testing.T) {
				f := netStart(t, netConfig{})
				f.put(t, digest.SHA256, text)
				damage(t, f.store, d)
				if err := upload(t.Context(), f); err != nil {
					t.Fatal(err)
				}
				if got := storeText(f.store, d); got != string(text) {
					t.Errorf("afterwards %.60q", got)
				}
				if got := f.store.Stats(); (got.DamagedBlobs == 0) != (what == "fine") || got.Blobs != 1 {
					t.Errorf("%+v", got)
				}
				storeWantConsistent(t, f.store)
			})
		}
	}
}

// TestStoreOpensAgainForItsUser: the file of the empty blob is there and not writable.
func TestStoreOpensAgainForItsUser(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		s := storeOpen(t, dir, StoreOptions{})
		before, err := os.Stat(s.emptyPath())
		if err != nil || before.Size() != 0 || before.Mode() != 0o444 {
			t.Fatalf("%v, %v", before, err)
		}
		if err := s.mendEmpty(); err != nil {
			t.Error(err)
		}
		if after, err := os.Stat(s.emptyPath()); err != nil || !os.SameFile(before, after) {
			t.Errorf("it is made anew: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
