package server

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/wire"
	"github.com/forerunner-build/forerunner/rpctest"
)

// A rawServer is called with bytes.
type rawServer struct {
	t        *testing.T
	dir      string // of the store
	services rpctest.Services
}

// newRawServer makes a server that has blobs.
func newRawServer(t *testing.T, blobs ...[]byte) *rawServer {
	t.Helper()
	f := &rawServer{t: t, dir: filepath.Join(t.TempDir(), "blobs")}
	store, err := disk.Open(f.dir, disk.Options{MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	actions, err := disk.OpenActions(filepath.Join(t.TempDir(), "actions"), disk.ActionsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(actions.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	for _, b := range blobs {
		if err := store.Put(t.Context(), digest.Of(digest.SHA256, b), bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	New(store, actions, Options{AllowActionUpdates: true}).Register(&f.services)
	return f
}

// call makes a call. Its error must say whether the caller or the server is at fault.
func (f *rawServer) call(method string, requests ...[]byte) ([][]byte, codes.Code) {
	f.t.Helper()
	answers, err := f.services.Call(f.t.Context(), method, requests...)
	code := status.Code(err)
	if errors.Is(err, rpctest.ErrNoMessage) {
		code = codes.InvalidArgument
	} else if code == codes.Internal || code == codes.Unknown || code == codes.Canceled {
		f.t.Fatalf("%s: %v", method, err)
	}
	size := 0
	for _, a := range answers {
		size += len(a)
	}
	if size > 64<<20 {
		f.t.Fatalf("%s answered %d bytes", method, size)
	}
	return answers, code
}

// expectBlobs checks that every blob in the store matches its name.
func (f *rawServer) expectBlobs() {
	f.t.Helper()
	err := filepath.WalkDir(f.dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		path, err := filepath.Rel(f.dir, name)
		if err != nil {
			return err
		}
		d, ok := disk.ParseBlobPath(path)
		if !ok {
			return nil // a lock, a half upload
		}
		content, err := os.ReadFile(name)
		if digest.Of(d.Function(), content) != d {
			f.t.Errorf("%s has %d bytes that are not its own", path, len(content))
		}
		return err
	})
	if err != nil {
		f.t.Error(err)
	}
}

const (
	readMethod   = "/google.bytestream.ByteStream/Read"
	writeMethod  = "/google.bytestream.ByteStream/Write"
	updateMethod = "/build.bazel.remote.execution.v2.ActionCache/UpdateActionResult"
	getMethod    = "/build.bazel.remote.execution.v2.ActionCache/GetActionResult"
	storeService = "/build.bazel.remote.execution.v2.ContentAddressableStorage/"
)

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzCalls makes any call with any two messages, and another one.
func FuzzCalls(f *testing.F) {
	var all rpctest.Services
	(&Server{}).Register(&all)
	methods := all.Methods()
	leaf := []byte("leaf")
	d := digest.Of(digest.SHA256, leaf)
	tree := encoded(f, &repb.Directory{
		Files:       []*repb.FileNode{{Name: "a", Digest: d.Proto()}},
		Directories: []*repb.DirectoryNode{{Name: "b", Digest: digest.SHA256.Empty().Proto()}},
	})
	root := digest.Of(digest.SHA256, tree)
	result := &repb.ActionResult{
		OutputFiles:       []*repb.OutputFile{{Path: "a", Digest: d.Proto()}},
		OutputDirectories: []*repb.OutputDirectory{{Path: "b", RootDirectoryDigest: root.Proto()}}, StdoutDigest: d.Proto(),
	}
	requests := map[string]proto.Message{
		readMethod:   &bytestream.ReadRequest{ResourceName: "blobs/" + d.String(), ReadOffset: 1, ReadLimit: 2},
		writeMethod:  &bytestream.WriteRequest{ResourceName: "uploads/" + netTestUUID + "/blobs/" + d.String(), Data: leaf, FinishWrite: true},
		updateMethod: &repb.UpdateActionResultRequest{InstanceName: "a", ActionDigest: d.Proto(), ActionResult: result},
		getMethod:    &repb.GetActionResultRequest{InstanceName: "a", ActionDigest: d.Proto(), InlineStdout: true, InlineOutputFiles: []string{"a"}},
		"/google.bytestream.ByteStream/QueryWriteStatus": &bytestream.QueryWriteStatusRequest{
			ResourceName: "uploads/" + netTestUUID + "/blobs/" + d.String(),
		},
		storeService + "FindMissingBlobs": &repb.FindMissingBlobsRequest{BlobDigests: []*repb.Digest{d.Proto(), root.Proto(), {Hash: "x"}}},
		storeService + "BatchReadBlobs": &repb.BatchReadBlobsRequest{
			Digests: []*repb.Digest{d.Proto(), d.Proto()}, AcceptableCompressors: []repb.Compressor_Value{repb.Compressor_ZSTD},
		},
		storeService + "BatchUpdateBlobs": &repb.BatchUpdateBlobsRequest{Requests: []*repb.BatchUpdateBlobsRequest_Request{
			{Digest: d.Proto(), Data: leaf}, {Digest: root.Proto(), Data: wire.NewBatchEncoder().EncodeAll(tree, nil), Compressor: repb.Compressor_ZSTD},
		}},
		storeService + "GetTree": &repb.GetTreeRequest{RootDigest: root.Proto(), PageSize: 1, PageToken: "1"},
	}
	for method, request := range requests {
		i := slices.Index(methods, method)
		if i < 0 {
			f.Fatalf("there is no %s", method)
		}
		b := encoded(f, request)
		f.Add(byte(i), b, []byte{}, byte(slices.Index(methods, readMethod)), encoded(f, requests[readMethod]))
		f.Add(byte(i), b, b, byte(slices.Index(methods, getMethod)), encoded(f, requests[getMethod]))
	}
	for i := range methods {
		f.Add(byte(i), []byte{}, []byte{}, byte(i), []byte{})
	}
	f.Fuzz(func(t *testing.T, method1 byte, first, second []byte, method2 byte, third []byte) {
		f := newRawServer(t, leaf, tree)
		f.call(methods[int(method1)%len(methods)], first, second)
		f.call(methods[int(method2)%len(methods)], third)
		f.expectBlobs()
	})
}

// FuzzWrite uploads a blob in two messages with arbitrary faults. If the server reports success, it
// has the blob.
func FuzzWrite(f *testing.F) {
	text := bytes.Repeat([]byte("text "), 300)
	f.Add(text, uint16(700), int64(0), false, true, int8(0), []byte{})
	f.Add(text, uint16(700), int64(1), true, true, int8(0), []byte{})
	f.Add(text, uint16(30), int64(-1), true, false, int8(1), []byte("x"))
	f.Add([]byte{}, uint16(0), int64(0), false, true, int8(-1), []byte{0xff})
	f.Fuzz(func(t *testing.T, content []byte, cut uint16, skew int64, compressed, finish bool, longer int8, tail []byte) {
		f := newRawServer(t)
		d := digest.Of(digest.SHA256, content)
		named, err := digest.Parse(digest.SHA256, d.Hash(), d.SizeBytes()+int64(longer))
		if err != nil {
			return
		}
		blobs, data := "blobs/", content
		if compressed {
			blobs, data = "compressed-blobs/zstd/", wire.NewBatchEncoder().EncodeAll(content, nil)
		}
		data = append(data, tail...)
		cut = uint16(min(int(cut), len(data)))
		name := "uploads/" + netTestUUID + "/" + blobs + named.String()
		_, code := f.call(writeMethod,
			encoded(t, &bytestream.WriteRequest{ResourceName: name, Data: data[:cut]}),
			encoded(t, &bytestream.WriteRequest{WriteOffset: int64(cut) + skew, Data: data[cut:], FinishWrite: finish}))
		f.expectBlobs()
		answers, read := f.call(readMethod, encoded(t, &bytestream.ReadRequest{ResourceName: "blobs/" + d.String()}))
		var got []byte
		for _, a := range answers {
			var m bytestream.ReadResponse
			if err := proto.Unmarshal(a, &m); err != nil {
				t.Fatal(err)
			}
			got = append(got, m.GetData()...)
		}
		if good := longer == 0 && skew == 0 && finish && len(tail) == 0; good && code != codes.OK {
			t.Errorf("a good upload has code %s", code)
		}
		if longer == 0 && code == codes.OK && (read != codes.OK || !bytes.Equal(got, content)) {
			t.Errorf("of %d bytes %d came back, code %s", len(content), len(got), read)
		}
	})
}

// FuzzActionResult stores arbitrary results. A result comes back unchanged or not at all.
func FuzzActionResult(f *testing.F) {
	leaf := []byte("leaf")
	d := digest.Of(digest.SHA256, leaf).Proto()
	tree := encoded(f, &repb.Tree{Root: &repb.Directory{Files: []*repb.FileNode{{Name: "a", Digest: d}}}})
	of := digest.Of(digest.SHA256, tree).Proto()
	for _, r := range []*repb.ActionResult{
		{ExitCode: 7, StdoutRaw: leaf, StderrDigest: d},
		{OutputFiles: []*repb.OutputFile{{Path: "a", Digest: d, IsExecutable: true}}},
		{OutputDirectories: []*repb.OutputDirectory{{Path: "", TreeDigest: of}}},
		{OutputDirectories: []*repb.OutputDirectory{{Path: "x", TreeDigest: d, RootDirectoryDigest: of}}},
		{OutputSymlinks: []*repb.OutputSymlink{{Path: "a", Target: "../b"}}},
		{OutputFiles: []*repb.OutputFile{{Path: "../a", Digest: &repb.Digest{Hash: "x", SizeBytes: -1}}}},
	} {
		f.Add(encoded(f, r))
	}
	f.Fuzz(func(t *testing.T, result []byte) {
		sent := &repb.ActionResult{}
		if proto.Unmarshal(result, sent) != nil {
			return
		}
		f := newRawServer(t, leaf, tree)
		_, updated := f.call(updateMethod, encoded(t, &repb.UpdateActionResultRequest{ActionDigest: d, ActionResult: sent}))
		answers, code := f.call(getMethod, encoded(t, &repb.GetActionResultRequest{ActionDigest: d}))
		switch {
		case updated != codes.OK && (updated != codes.InvalidArgument && updated != codes.NotFound || code != codes.NotFound):
			t.Fatalf("refused with code %s, then it is there with %s", updated, code)
		case code == codes.OK:
			got := &repb.ActionResult{}
			if err := proto.Unmarshal(answers[0], got); err != nil || !proto.Equal(got, sent) {
				t.Fatalf("%v came back as %v, %v", sent, got, err)
			}
		case code != codes.NotFound:
			t.Fatalf("code %s", code)
		}
	})
}
