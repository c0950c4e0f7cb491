package stored

import (
	"context"
	"fmt"
	"sync/atomic"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// maxDirectories limits the directories of an input root.
	maxDirectories = 100_000
	// maxTreeBytes limits the memory of these directories.
	maxTreeBytes = 32 << 20
	// treeReads is the number of directories that are read concurrently.
	treeReads = 16
)

// Tree reads all directories of an input root, level by level.
func Tree(ctx context.Context, blobs Blobs, root digest.Digest) ([]*repb.Directory, error) {
	known := map[digest.Digest]bool{root: true}
	var all []*repb.Directory
	var bytes atomic.Int64
	for level := []digest.Digest{root}; len(level) > 0; {
		list := make([]*repb.Directory, len(level))
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(treeReads)
		for i, d := range level {
			group.Go(func() error {
				list[i] = &repb.Directory{}
				n, err := Message(ctx, blobs, d, maxTreeBytes/treeReads, list[i])
				if err == nil && bytes.Add(n) > maxTreeBytes {
					err = status.Errorf(codes.FailedPrecondition,
						"the folders of the input root take more than %d bytes of memory; use forerunner profile", maxTreeBytes)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		all = append(all, list...)
		level = nil
		for _, m := range list {
			for _, e := range m.GetDirectories() {
				d, err := digest.FromProto(root.Function(), e.GetDigest())
				if err != nil {
					return nil, fmt.Errorf("folder %q: %w", e.GetName(), err)
				}
				if !known[d] {
					known[d] = true
					level = append(level, d)
				}
			}
		}
		if len(known) > maxDirectories {
			return nil, status.Errorf(codes.FailedPrecondition,
				"the input root has more than %d folders; use forerunner profile", maxDirectories)
		}
	}
	return all, nil
}
