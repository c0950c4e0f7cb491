package scheduler

import (
	"context"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

const (
	// inlineBytes limits the output files in one response of Execute or of GetActionResult.
	inlineBytes = 1 << 20
	// inlinePatience is for how long a result waits for them, inlineReads how many are read at a
	// time.
	inlinePatience = 2 * time.Second
	inlineReads    = 16
)

// An inlining adds the contents of output files to a result, for the one client that asked for
// them: in REv2 (ExecuteRequest.inline_output_files) it is a hint, so the client reads files that
// cannot be added.
type inlining struct {
	storage operation.Storage
	fn      digest.Function
	paths   []string
}

// into returns r with the wanted files, in the order of the result, while there is room. r has
// other readers, too.
func (i inlining) into(ctx context.Context, r *repb.ExecuteResponse) *repb.ExecuteResponse {
	small, bytes := i.choose(r.GetResult().GetOutputFiles())
	const copies = 3 // as it is read, in the response, and encoded
	if len(small) == 0 || intake.Reserve(ctx, copies*bytes) != nil {
		return r
	}
	r = proto.CloneOf(r)
	ctx, cancel := context.WithTimeout(ctx, inlinePatience)
	defer cancel()
	var reads errgroup.Group
	reads.SetLimit(inlineReads)
	for at, d := range small {
		reads.Go(func() error {
			if content, err := i.storage.Read(ctx, d); err == nil {
				r.Result.OutputFiles[at].Contents = content
			}
			return nil
		})
	}
	_ = reads.Wait() // none returns one
	return r
}

// choose returns which of files there is room for, by their places, and their size.
func (i inlining) choose(files []*repb.OutputFile) (small map[int]digest.Digest, bytes int64) {
	small = map[int]digest.Digest{}
	wanted := make(map[string]struct{}, len(i.paths))
	for _, path := range i.paths {
		wanted[path] = struct{}{}
	}
	for at, f := range files {
		if _, ok := wanted[f.GetPath()]; !ok || len(f.GetContents()) > 0 {
			continue
		}
		d, err := digest.FromProto(i.fn, f.GetDigest())
		if err != nil || d.SizeBytes() > inlineBytes-bytes {
			continue
		}
		small[at] = d
		bytes += d.SizeBytes()
	}
	return small, bytes
}

// of returns st with the additions of into to its response.
func (i inlining) of(ctx context.Context, st *event.Status) *event.Status {
	if !st.Done() || len(i.paths) == 0 {
		return st
	}
	full := *st
	full.Response = i.into(ctx, st.Response)
	return &full
}
