package testbed

import (
	"context"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// An Upload has blobs that a storage is to have. Each method but To adds one, and returns its digest.
type Upload struct{ blobs []casclient.Blob }

// Bytes adds bytes.
func (u *Upload) Bytes(content []byte) digest.Digest {
	d := digest.Of(Function, content)
	u.blobs = append(u.blobs, casclient.BytesBlob(d, content))
	return d
}

// Message adds an encoded message.
func (u *Upload) Message(m proto.Message) (digest.Digest, error) {
	d, raw, err := digest.OfMessage(Function, m)
	if err == nil {
		u.blobs = append(u.blobs, casclient.BytesBlob(d, raw))
	}
	return d, err
}

// Action adds an action whose result is not cached.
func (u *Upload) Action(command, root digest.Digest) (digest.Digest, error) {
	return u.Message(&repb.Action{CommandDigest: command.Proto(), InputRootDigest: root.Proto(), DoNotCache: true})
}

// To uploads all.
func (u *Upload) To(ctx context.Context, storage *casclient.Client) error {
	return storage.Upload(ctx, u.blobs, nil)
}
