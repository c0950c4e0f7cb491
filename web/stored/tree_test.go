package stored

import (
	"bytes"
	"context"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// fakeBlobs holds blobs by their digest.
type fakeBlobs map[digest.Digest][]byte

func (b fakeBlobs) Read(_ context.Context, d digest.Digest) ([]byte, error) {
	if blob, ok := b[d]; ok {
		return blob, nil
	}
	return nil, digest.ErrNotFound
}

// TestMessagesThatAreTooLarge reads messages that take much more memory than their encoding.
func TestMessagesThatAreTooLarge(t *testing.T) {
	blobs := fakeBlobs{}
	put := func(b []byte) digest.Digest {
		d := digest.Of(digest.SHA256, b)
		blobs[d] = b
		return d
	}
	variables := put(bytes.Repeat([]byte{0x12, 0}, 100_000)) // 100,000 empty variables
	if _, err := Message(t.Context(), blobs, variables, MaxBytes, &repb.Command{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a hundred thousand variables: %v", err)
	}
	few := put(bytes.Repeat([]byte{0x12, 0}, 1000))
	if n, err := Message(t.Context(), blobs, few, MaxBytes, &repb.Command{}); err != nil || n < 50_000 || n > 200_000 {
		t.Errorf("a thousand variables take %d bytes: %v", n, err)
	}

	root := &repb.Directory{}
	for i := range 40 {
		folder := put(append(bytes.Repeat([]byte{0x0a, 0}, 10_000), 0x78, byte(i))) // the unknown field makes the digests differ
		root.Directories = append(root.Directories, &repb.DirectoryNode{Name: string(rune('A' + i)), Digest: folder.Proto()})
	}
	encoded, err := proto.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Tree(t.Context(), blobs, put(encoded)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("an input root with 400,000 files: %v", err)
	}
}
