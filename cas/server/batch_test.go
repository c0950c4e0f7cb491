package server

import (
	"context"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
)

// TestBatchesOfNothing asks for room for the answers to a batch, which are much longer than its
// requests.
func TestBatchesOfNothing(t *testing.T) {
	const n = 5000
	var reserved int64
	f := netStart(t, netConfig{server: Options{WaitForMemory: func(_ context.Context, bytes int64) error {
		reserved = bytes
		return nil
	}}})
	updates := &repb.BatchUpdateBlobsRequest{}
	reads := &repb.BatchReadBlobsRequest{}
	for range n {
		updates.Requests = append(updates.Requests, &repb.BatchUpdateBlobsRequest_Request{})
		reads.Digests = append(reads.Digests, &repb.Digest{})
	}
	updated, err := f.cas.BatchUpdateBlobs(t.Context(), updates)
	if err != nil {
		t.Fatal(err)
	}
	if took := int64(proto.Size(updated)); reserved < 2*took || took < 10*int64(proto.Size(updates)) {
		t.Errorf("%d bytes of requests have %d bytes of answers, for which there is room for %d", proto.Size(updates), took, reserved)
	}
	reserved = 0
	read, err := f.cas.BatchReadBlobs(t.Context(), reads)
	if err != nil {
		t.Fatal(err)
	}
	if took := int64(proto.Size(read)); reserved < 2*took {
		t.Errorf("%d bytes of requests have %d bytes of answers, for which there is room for %d", proto.Size(reads), took, reserved)
	}
}
