package flood

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/protobuf/proto"
)

const (
	methodBatchRead = "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchReadBlobs"
	methodGetTree   = "/build.bazel.remote.execution.v2.ContentAddressableStorage/GetTree"
)

// answerFloods are floods in which a few bytes make a server need many: windows of zstd, and unread
// answers.
func answerFloods() []flood {
	// Digests are computed once: a client that hashes hardly floods.
	blob := make([]byte, 3_700_000)
	_, _ = rand.Read(blob)
	uploaded, read := update(blob), readOf(blob)
	directory := largeDirectory(1_000_000)
	tree, root := update(directory), digestOf(directory)
	return []flood{
		{name: "windows of zstd", clients: 10, press: func(c *rudeClient) {
			inParallel(100, func() { c.pressCall(methodWrite, firstOfCompressed(8<<20)) })
		}},
		{name: "answers that nobody reads", clients: 2, press: func(c *rudeClient) {
			c.pressWhole(methodBatch, uploaded)
			inParallel(700, func() { c.pressWhole(methodBatchRead, read) })
		}},
		{name: "small answers that nobody reads", clients: 2, press: func(c *rudeClient) {
			blob := make([]byte, 40_000)
			_, _ = rand.Read(blob)
			c.pressWhole(methodBatch, update(blob))
			read := readOf(blob)
			inParallel(1000, func() { c.pressWhole(methodBatchRead, read) })
		}},
		{name: "trees that nobody reads", clients: 2, press: func(c *rudeClient) {
			c.pressWhole(methodBatch, tree)
			inParallel(200, func() { c.pressWhole(methodGetTree, &repb.GetTreeRequest{RootDigest: root}) })
		}},
	}
}

// pressWhole makes a call and reads nothing of its answer but a window of 64 KiB.
func (c *rudeClient) pressWhole(method string, request proto.Message) {
	encoded, err := proto.Marshal(request)
	if err != nil {
		panic(err)
	}
	stream, err := c.call(method)
	if err != nil || c.send(stream, append(message(len(encoded)), encoded...)) != nil || c.frame(frameData, flagEndStream, stream, nil) != nil {
		return
	}
	c.ended(stream)
}

func digestOf(blob []byte) *repb.Digest {
	return &repb.Digest{Hash: fmt.Sprintf("%x", sha256.Sum256(blob)), SizeBytes: int64(len(blob))}
}

func update(blob []byte) *repb.BatchUpdateBlobsRequest {
	return &repb.BatchUpdateBlobsRequest{
		Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: digestOf(blob), Data: blob}},
	}
}

func readOf(blob []byte) *repb.BatchReadBlobsRequest {
	return &repb.BatchReadBlobsRequest{Digests: []*repb.Digest{digestOf(blob)}}
}

// largeDirectory returns a Directory with files that has about that many bytes.
func largeDirectory(size int) []byte {
	d := &repb.Directory{}
	empty := digestOf(nil)
	for i := range size / 90 {
		d.Files = append(d.Files, &repb.FileNode{Name: fmt.Sprintf("%08d", i), Digest: empty})
	}
	encoded, err := proto.Marshal(d)
	if err != nil {
		panic(err)
	}
	return encoded
}

// firstOfCompressed is the first message of a compressed upload: the header of a frame that needs a
// window, and of a block that does not come.
func firstOfCompressed(window int) []byte {
	var hash [32]byte
	_, _ = rand.Read(hash[:])
	descriptor := byte(0)
	for 1<<(10+descriptor) < window {
		descriptor++
	}
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, descriptor << 3}
	block := append([]byte{0, 0, 2}, bytes.Repeat([]byte{'x'}, 1000)...) // 16 KiB uncompressed, of which a part is sent
	request, err := proto.Marshal(&bytestream.WriteRequest{
		ResourceName: fmt.Sprintf("uploads/%x-%x-%x-%x-%x/compressed-blobs/zstd/%x/%d", hash[:4], hash[4:6], hash[6:8], hash[8:10], hash[10:16], hash, 100<<20),
		Data:         append(frame, block...),
	})
	if err != nil {
		panic(err)
	}
	return append(message(len(request)), request...)
}
