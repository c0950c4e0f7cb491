package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// maxTreeDirectories bounds the distinct directories of one tree.
const maxTreeDirectories = 1 << 20

// pageBytes bounds the directories of one answer of GetTree, unless one alone has more.
const pageBytes = 512 << 10

// readEncoded reads the blob d, a message of that type. One that is too large is INVALID_ARGUMENT.
// Each of its bytes takes so many of memory.
func (c catalog) readEncoded(ctx context.Context, d digest.Digest, kind protoreflect.Name, each int64) ([]byte, error) {
	if d.SizeBytes() > maxMessageBlob {
		return nil, status.Errorf(codes.InvalidArgument, "%s %s: larger than %d bytes", kind, d, maxMessageBlob)
	}
	if err := c.reserve(ctx, d.SizeBytes(), each); err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, d, err)
	}
	b, err := c.ReadBlob(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind, d, err)
	}
	return b, nil
}

// readMessage reads and decodes the blob d. A blob that is too large or is no
// such message is INVALID_ARGUMENT.
func (c catalog) readMessage(ctx context.Context, d digest.Digest, m proto.Message) error {
	kind := m.ProtoReflect().Descriptor().Name()
	b, err := c.readEncoded(ctx, d, kind, decoded)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return status.Errorf(codes.InvalidArgument, "blob %s is not a %s: %v", d, kind, err)
	}
	return nil
}

// A treeNode is a directory of a tree that is walked.
type treeNode struct {
	digest  digest.Digest
	missing bool // it is not in the store; the rest is empty
	encoded []byte
	refs    tree.References
}

// readNode reads the Directory d, of which each byte takes so many of memory.
func (c catalog) readNode(ctx context.Context, d digest.Digest, each int64) (treeNode, error) {
	n := treeNode{digest: d}
	var err error
	if n.encoded, err = c.readEncoded(ctx, d, "Directory", each); errors.Is(err, cas.ErrNotFound) {
		n.missing = true
		return n, nil
	} else if err != nil {
		return n, err
	}
	if n.refs, err = tree.ReferencesOf(d.Function(), n.encoded); err != nil {
		return n, fmt.Errorf("directory %s: %w", d, err)
	}
	return n, nil
}

// walkTree visits each distinct directory of a tree once, the root first, level by level, including
// missing ones. A tree cannot contain itself, and a directory that it contains a million times is
// visited once. The walk continues with the directories that visit leaves in refs.Directories. Each
// byte of a directory takes so many of memory, including that of visit.
func (c catalog) walkTree(ctx context.Context, root digest.Digest, each int64, visit func(*treeNode) error) error {
	queue := []digest.Digest{root}
	seen := map[digest.Digest]struct{}{root: {}}
	for i := 0; i < len(queue); i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := c.readNode(ctx, queue[i], each)
		if err != nil {
			return err
		}
		if err := visit(&n); err != nil {
			return err
		}
		for _, child := range n.refs.Directories {
			if _, twice := seen[child]; twice {
				continue
			}
			if len(queue) >= maxTreeDirectories {
				return status.Errorf(codes.ResourceExhausted,
					"tree %s has more than %d different directories", root, maxTreeDirectories)
			}
			seen[child] = struct{}{}
			queue = append(queue, child)
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
	p := pager{stream: stream, maxCount: int(r.GetPageSize()), maxBytes: int(min(pageBytes, v.s.options.MaxBatchBytes))}
	if err := v.s.options.WaitForMemory(stream.Context(), resent*int64(p.maxBytes)); err != nil {
		return err
	}
	if err := v.s.catalog(r.GetInstanceName()).walkTree(stream.Context(), root, resent, func(n *treeNode) error {
		p.position++
		switch {
		case n.missing && n.digest == root:
			return &cas.MissingError{Digests: []digest.Digest{root}}
		case n.missing, p.position <= skip:
			return nil
		}
		m := new(repb.Directory)
		if err := proto.Unmarshal(n.encoded, m); err != nil {
			// Names that are not UTF-8 are allowed in a blob and not in a response.
			return status.Errorf(codes.InvalidArgument,
				"directory %s is too large for a message: read it as a blob: %v", n.digest, err)
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
		return 0, status.Errorf(codes.InvalidArgument, "page_token %.50q is not from this server", s)
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

// add appends the directory at p.position, after sending a full page.
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
