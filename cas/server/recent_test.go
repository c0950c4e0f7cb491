package server

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
)

// TestReadsWhatCameFromMemory uploads blobs in each way, and then takes their files away: an action
// that a client has just uploaded is read without them. Another instance name, which has not
// uploaded it, does not see it.
func TestReadsWhatCameFromMemory(t *testing.T) {
	for _, test := range []struct {
		name   string
		upload func(t *testing.T, f *netFarm, d digest.Digest, b []byte) error
		size   int
		isKept bool
	}{
		{"batch", uploadBatch, 200, true},
		{"stream", uploadStream, 200, true},
		{"largest", uploadStream, recentBlob, true},
		{"too large", uploadBatch, recentBlob + 1, false},
		{"too large a stream", uploadStream, recentBlob + 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "blobs")
			f := netStart(t, netConfig{dir: dir, store: disk.Options{Isolate: true}})
			b := netBytes(1, test.size)
			d := digest.Of(digest.SHA256, b)
			if err := test.upload(t, f, d, b); err != nil {
				t.Fatal(err)
			}
			if _, err := f.server.ReadBlob(t.Context(), "other", d); err == nil {
				t.Error("an instance name reads what another has uploaded")
			}
			removeFiles(t, dir)
			got, err := f.server.ReadBlob(t.Context(), "", d)
			if isKept := err == nil && string(got) == string(b); isKept != test.isKept {
				t.Errorf("read without the file: %d bytes, %v; want %v", len(got), err, test.isKept)
			}
			if _, err := f.server.ReadBlob(t.Context(), "other", d); err == nil {
				t.Error("an instance name reads what another has uploaded")
			}
		})
	}
}

// TestDamagedUploadIsNotRead uploads bytes that have another digest.
func TestDamagedUploadIsNotRead(t *testing.T) {
	for name, upload := range map[string]func(*testing.T, *netFarm, digest.Digest, []byte) error{"batch": uploadBatch, "stream": uploadStream} {
		f := netStart(t, netConfig{})
		d := digest.Of(digest.SHA256, []byte("right"))
		for _, wrong := range []string{"wrong", "short", "righ", "right and more"} {
			netCode(t, name+" of "+wrong, upload(t, f, d, []byte(wrong)), codes.InvalidArgument)
		}
		if b, err := f.server.ReadBlob(t.Context(), "", d); err == nil {
			t.Errorf("%s: read %q", name, b)
		}
	}
}

// TestRecentBlobsAreBounded adds more than there is room for.
func TestRecentBlobsAreBounded(t *testing.T) {
	const memory = 64 << 20
	r := newRecent(memory)
	name := strings.Repeat("n", 100)
	var last digest.Digest
	for i := range 1000 {
		b := netBytes(uint64(i), 1000)
		last = digest.Of(digest.SHA256, b)
		r.add(name, last, b)
	}
	if n := r.blobs.Weight(); n > memory/recentParts || n < memory/recentParts/2 {
		t.Errorf("%d bytes are kept of %d", n, memory/recentParts)
	}
	if _, ok := r.get(name, last); !ok {
		t.Error("the last one is not kept")
	}
}

func uploadBatch(t *testing.T, f *netFarm, d digest.Digest, b []byte) error {
	resp, err := f.cas.BatchUpdateBlobs(t.Context(), &repb.BatchUpdateBlobsRequest{
		Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: d.Proto(), Data: b}},
	})
	if err != nil {
		return err
	}
	return status.ErrorProto(resp.GetResponses()[0].GetStatus())
}

func uploadStream(t *testing.T, f *netFarm, d digest.Digest, b []byte) error {
	_, err := f.write(t, &bytestream.WriteRequest{
		ResourceName: "uploads/" + netTestUUID + "/blobs/" + d.String(), Data: b, FinishWrite: true,
	})
	return err
}

// removeFiles removes all files below a folder.
func removeFiles(t *testing.T, dir string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		return os.Remove(path)
	}); err != nil {
		t.Fatal(err)
	}
}
