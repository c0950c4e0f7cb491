package cas

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// maxTreeDirectories bounds the distinct directories of one tree.
const maxTreeDirectories = 1 << 20

// readMessage reads and decodes the blob d. A blob that is too large or is no
// such message is INVALID_ARGUMENT.
func (s *Server) readMessage(ctx context.Context, d digest.Digest, m proto.Message) error {
	kind := m.ProtoReflect().Descriptor().Name()
	if d.SizeBytes() > maxMessageBlob {
		return status.Errorf(codes.InvalidArgument, "%s %s: larger than %d bytes", kind, d, maxMessageBlob)
	}
	b, err := s.store.ReadBlob(ctx, d)
	if err != nil {
		return fmt.Errorf("read %s %s: %w", kind, d, err)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return status.Errorf(codes.InvalidArgument, "blob %s is not a %s: %v", d, kind, err)
	}
	return nil
}

// walkTree visits each distinct directory of a tree once, the root first, level
// by level. What is not in the store is visited with a nil message. A tree cannot
// contain itself, and one that names a directory a million times names it once.
func (s *Server) walkTree(
	ctx context.Context, root digest.Digest, visit func(digest.Digest, *repb.Directory) error,
) error {
	queue := []digest.Digest{root}
	seen := map[digest.Digest]struct{}{root: {}}
	for i := 0; i < len(queue); i++ {
		d := queue[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		m := new(repb.Directory)
		if err := s.readMessage(ctx, d, m); errors.Is(err, ErrNotFound) {
			m = nil
		} else if err != nil {
			return err
		}
		if err := visit(d, m); err != nil {
			return err
		}
		for _, child := range m.GetDirectories() {
			c, err := digest.FromProto(root.Function(), child.GetDigest())
			if err != nil {
				return fmt.Errorf("directory %s: %.100q: %w", d, child.GetName(), err)
			}
			if _, twice := seen[c]; twice {
				continue
			}
			if len(queue) >= maxTreeDirectories {
				return status.Errorf(codes.ResourceExhausted,
					"tree %s has more than %d different directories", root, maxTreeDirectories)
			}
			seen[c] = struct{}{}
			queue = append(queue, c)
		}
	}
	return nil
}

// GetTree sends each distinct directory of a tree once, the root first. Page
// tokens count directories, so a tree that gains a missing part between two
// calls may be listed differently by the second.
func (v *storageService) GetTree(
	r *repb.GetTreeRequest, stream repb.ContentAddressableStorage_GetTreeServer,
) error {
	return v.s.readStatus(v.getTree(r, stream))
}

func (v *storageService) getTree(
	r *repb.GetTreeRequest, stream repb.ContentAddressableStorage_GetTreeServer,
) error {
	fn, err := request(r.GetInstanceName(), r.GetDigestFunction())
	if err != nil {
		return err
	}
	root, err := digest.FromProto(fn, r.GetRootDigest())
	if err != nil {
		return err
	}
	if r.GetPageSize() < 0 {
		return status.Errorf(codes.InvalidArgument, "page_size %d is negative", r.GetPageSize())
	}
	skip, err := parsePageToken(r.GetPageToken())
	if err != nil {
		return err
	}
	p := pager{stream: stream, maxCount: int(r.GetPageSize()), maxBytes: int(v.s.options.MaxBatchBytes)}
	if err := v.s.walkTree(stream.Context(), root, func(d digest.Digest, m *repb.Directory) error {
		p.position++
		switch {
		case m == nil && d == root:
			return &MissingError{Digests: []digest.Digest{root}}
		case m == nil, p.position <= skip:
			return nil
		}
		return p.add(m)
	}); err != nil {
		return err
	}
	if p.position < skip {
		return status.Errorf(codes.InvalidArgument, "page_token %q is past the end of tree %s", r.GetPageToken(), root)
	}
	return p.flush("")
}

func parsePageToken(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || strconv.Itoa(n) != s {
		return 0, status.Errorf(codes.InvalidArgument, "page_token %.50q is not one of this server", s)
	}
	return n, nil
}

// A pager gathers directories into responses.
type pager struct {
	stream   repb.ContentAddressableStorage_GetTreeServer
	maxCount int // 0 is no limit
	maxBytes int
	position int // of the directory that is being visited, from 1

	page  []*repb.Directory
	bytes int
}

// add appends the directory at p.position, after sending what is full.
func (p *pager) add(m *repb.Directory) error {
	size := proto.Size(m)
	full := p.maxCount > 0 && len(p.page) >= p.maxCount || p.bytes+size > p.maxBytes
	if full && len(p.page) > 0 {
		if err := p.flush(strconv.Itoa(p.position - 1)); err != nil {
			return err
		}
	}
	p.page = append(p.page, m)
	p.bytes += size
	return nil
}

func (p *pager) flush(next string) error {
	err := p.stream.Send(&repb.GetTreeResponse{Directories: p.page, NextPageToken: next})
	p.page, p.bytes = nil, 0
	return err
}
