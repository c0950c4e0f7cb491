package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/peer"
	"github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/wire"
	"github.com/forerunner-build/forerunner/rpctest"
)

// rotReadStream reads a resource whole and returns its bytes and the code at the end.
func rotReadStream(t *testing.T, f *servertest.Farm, format string, d digest.Digest) ([]byte, codes.Code) {
	t.Helper()
	all, err := f.Read(t.Context(), fmt.Sprintf(format, d.Hash(), d.SizeBytes()))
	return all, status.Code(err)
}

// TestServerNeverReadsOutRot: whichever way a damaged blob is read, the bytes do not come
// with OK, it is missing from then on, and an upload heals it.
func TestServerNeverReadsOutRot(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	g := grpc.NewServer()
	peer.NewServer(f.Store, nil).Register(g)
	lent := &servertest.Farm{Conn: rpctest.Serve(t, g)}
	lent.Blobs = repb.NewContentAddressableStorageClient(lent.Conn)
	lent.Streams = bytestream.NewByteStreamClient(lent.Conn)
	ways := map[string]func(t *testing.T, d digest.Digest) codes.Code{}
	stream := func(f *servertest.Farm, format string) func(*testing.T, digest.Digest) codes.Code {
		return func(t *testing.T, d digest.Digest) codes.Code {
			got, code := rotReadStream(t, f, format, d)
			if int64(len(got)) >= d.SizeBytes() {
				t.Errorf("%d bytes came", len(got))
			}
			return code
		}
	}
	batch := func(f *servertest.Farm) func(t *testing.T, d digest.Digest) codes.Code {
		return func(t *testing.T, d digest.Digest) codes.Code {
			r, err := f.Blobs.BatchReadBlobs(t.Context(),
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
	ways["stream"], ways["lent stream"] = stream(f, "blobs/%s/%d"), stream(lent, "blobs/%s/%d")
	ways["zstd"] = stream(f, "compressed-blobs/zstd/%s/%d")
	ways["batch"], ways["lent batch"] = batch(f), batch(lent)
	for way, read := range ways {
		for _, size := range []int{1, 1000, wire.StreamChunk, wire.StreamChunk + 1, 3 * wire.StreamChunk} {
			for what, damage := range map[string]func(testing.TB, *disk.Store, digest.Digest){
				"rot": disk.Rot, "silent rot": disk.RotSilently,
				"short": func(t testing.TB, s *disk.Store, d digest.Digest) {
					if err := os.Truncate(disk.FilePath(s, d), d.SizeBytes()-1); err != nil {
						t.Fatal(err)
					}
				},
			} {
				t.Run(fmt.Sprint(way, size, what), func(t *testing.T) {
					b := servertest.Bytes(uint64(size), size)
					d := f.Put(t, digest.SHA256, b)
					damage(t, f.Store, d)
					if code := read(t, d); code != codes.NotFound {
						t.Errorf("read: %s", code)
					}
					missing, err := f.Store.FindMissing(t.Context(), []digest.Digest{d})
					if what == "short" && way[:4] == "lent" {
						return // a peek leaves no trace
					}
					if err != nil || len(missing) != 1 {
						t.Errorf("missing %v, %v", missing, err)
					}
					if got := disk.Text(f.Store, f.Put(t, digest.SHA256, b)); got != string(b) {
						t.Error("an upload does not heal it")
					}
				})
			}
		}
	}
}

// TestServerReadsOutWhatIsRight: the end that is kept back comes.
func TestServerReadsOutWhatIsRight(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	for _, size := range []int{1, 1000, wire.StreamChunk - 1, wire.StreamChunk, wire.StreamChunk + 1, 2 * wire.StreamChunk, 3*wire.StreamChunk + 7} {
		b := servertest.Bytes(uint64(size), size)
		d := f.Put(t, digest.BLAKE3, b)
		got, code := rotReadStream(t, f, "blobs/blake3/%s/%d", d)
		if code != codes.OK || !bytes.Equal(got, b) {
			t.Errorf("%d bytes: %d came, %s", size, len(got), code)
		}
		disk.Forget(t, f.Store, d)
		got, code = rotReadStream(t, f, "compressed-blobs/zstd/blake3/%s/%d", d)
		if code != codes.OK || !bytes.Equal(unzstd(t, got), b) {
			t.Errorf("%d bytes compressed: %d came, %s", size, len(got), code)
		}
		if !disk.IsVerified(f.Store, d) {
			t.Error("a whole read is no verification")
		}
	}
}

// TestUploadsHealWhatIsNotVouchedFor: an upload of a wrong blob that already exists is not answered
// before it is read.
func TestUploadsHealWhatIsNotVouchedFor(t *testing.T) {
	text := bytes.Repeat([]byte("text "), 100_000)
	d := digest.Of(digest.SHA256, text)
	ways := map[string]func(ctx context.Context, f *servertest.Farm) error{
		"PutBytes": func(ctx context.Context, f *servertest.Farm) error { return f.Store.PutBytes(ctx, d, text) },
		"Put":      func(ctx context.Context, f *servertest.Farm) error { return f.Store.Put(ctx, d, bytes.NewReader(text)) },
		"Take": func(ctx context.Context, f *servertest.Farm) error {
			path := f.Store.TempDir() + "/output"
			if err := os.WriteFile(path, text, 0o600); err != nil {
				return err
			}
			_, err := f.Store.Take(ctx, path, d.Function())
			return err
		},
		"TakeCopy": func(ctx context.Context, f *servertest.Farm) error {
			path := f.Store.TempDir() + "/output"
			if err := os.WriteFile(path, text, 0o600); err != nil {
				return err
			}
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			_, err = f.Store.TakeCopy(ctx, file, d.Function())
			return errors.Join(err, file.Close(), os.Remove(path))
		},
		"batch": func(ctx context.Context, f *servertest.Farm) error {
			r, err := f.Blobs.BatchUpdateBlobs(ctx,
				&repb.BatchUpdateBlobsRequest{Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: d.Proto(), Data: text}}})
			if err == nil {
				err = status.ErrorProto(r.GetResponses()[0].GetStatus())
			}
			return err
		},
		"stream": func(ctx context.Context, f *servertest.Farm) error {
			stream, err := f.Streams.Write(ctx)
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
		for what, damage := range map[string]func(testing.TB, *disk.Store, digest.Digest){
			"changed": disk.Rot,
			"stale":   func(t testing.TB, s *disk.Store, d digest.Digest) { disk.RotSilently(t, s, d); disk.Forget(t, s, d) },
			"fine":    disk.Forget,
		} {
			t.Run(way+" "+what, func(t *testing.T) {
				f := servertest.Start(t, servertest.Config{})
				f.Put(t, digest.SHA256, text)
				damage(t, f.Store, d)
				if err := upload(t.Context(), f); err != nil {
					t.Fatal(err)
				}
				if got := disk.Text(f.Store, d); got != string(text) {
					t.Errorf("afterwards %.60q", got)
				}
				if got := f.Store.Stats(); (got.DamagedBlobs == 0) != (what == "fine") || got.Blobs != 1 {
					t.Errorf("%+v", got)
				}
				disk.WantConsistent(t, f.Store)
			})
		}
	}
}

func unzstd(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestResultsNameWhatIsThere: a result whose blobs are damaged is neither accepted nor found. A
// worker that looks for missing blobs uploads them again.
func TestResultsNameWhatIsThere(t *testing.T) {
	stale := func(t testing.TB, s *disk.Store, d digest.Digest) { disk.RotSilently(t, s, d); disk.Age(s, d) }
	for what, damage := range map[string]func(testing.TB, *disk.Store, digest.Digest){"changed": disk.Rot, "stale": stale} {
		t.Run(what, func(t *testing.T) {
			f := servertest.Start(t, servertest.Config{Server: server.Options{AllowActionUpdates: true}})
			actions := repb.NewActionCacheClient(f.Conn)
			command := f.PutMessage(t, &repb.Command{Arguments: []string{"true"}})
			action := f.PutMessage(t, &repb.Action{CommandDigest: command.Proto()}).Proto()
			text := []byte("an output")
			d, inTree := f.Put(t, digest.SHA256, text), f.Put(t, digest.SHA256, []byte("in a tree"))
			tree := f.PutMessage(t, &repb.Tree{Root: &repb.Directory{Files: []*repb.FileNode{{Name: "x", Digest: inTree.Proto()}}}})
			update := func() codes.Code {
				_, err := actions.UpdateActionResult(t.Context(), &repb.UpdateActionResultRequest{
					ActionDigest: action, ActionResult: &repb.ActionResult{
						OutputFiles:       []*repb.OutputFile{{Path: "out", Digest: d.Proto()}},
						OutputDirectories: []*repb.OutputDirectory{{Path: "d", TreeDigest: tree.Proto()}},
					},
				})
				return status.Code(err)
			}
			bring := func() {
				blobs := []client.Blob{client.BytesBlob(d, text), client.BytesBlob(inTree, []byte("in a tree"))}
				err := client.New(f.Conn, client.Options{}).Upload(client.Vouched(t.Context()), blobs, nil)
				if err != nil || disk.Text(f.Store, d) != string(text) {
					t.Errorf("brought again: %v, %q", err, disk.Text(f.Store, d))
				}
			}
			for _, harmed := range []digest.Digest{d, inTree} {
				damage(t, f.Store, harmed)
				if code := update(); code != codes.FailedPrecondition {
					t.Errorf("a result that names a damaged blob: %s", code)
				}
				bring()
			}
			damage(t, f.Store, d)
			bring() // without an earlier detection
			if code := update(); code != codes.OK {
				t.Errorf("when all is there: %s", code)
			}
			disk.Rot(t, f.Store, inTree)
			_, err := actions.GetActionResult(t.Context(), &repb.GetActionResultRequest{ActionDigest: action})
			if status.Code(err) != codes.NotFound {
				t.Errorf("a result is found whose blob is damaged: %v", err)
			}
		})
	}
}
