package client

import (
	"context"
	"fmt"
	"io"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
)

// GetActionResult returns the result of an action, or ErrNotFound. Nothing in it
// is inline.
func (c *Client) GetActionResult(ctx context.Context, d digest.Digest) (*repb.ActionResult, error) {
	if _, err := c.unique([]digest.Digest{d}); err != nil {
		return nil, fmt.Errorf("get action result: %w", err)
	}
	r := &repb.GetActionResultRequest{
		InstanceName: c.instance, ActionDigest: d.Proto(), DigestFunction: c.fn.Proto(),
	}
	var result *repb.ActionResult
	err := c.link.retry(ctx, func(ctx context.Context) (err error) {
		result, err = c.link.actions.GetActionResult(ctx, r, callOptions()...)
		return err
	})
	if status.Code(err) == codes.NotFound {
		err = fmt.Errorf("%w: %w", cas.ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("get action result %s: %w", d, err)
	}
	return result, nil
}

// UpdateActionResult stores the result of an action whose outputs have been uploaded.
func (c *Client) UpdateActionResult(ctx context.Context, d digest.Digest, result *repb.ActionResult) error {
	if _, err := c.unique([]digest.Digest{d}); err != nil {
		return fmt.Errorf("update action result: %w", err)
	}
	r := &repb.UpdateActionResultRequest{
		InstanceName: c.instance, ActionDigest: d.Proto(), ActionResult: result, DigestFunction: c.fn.Proto(),
	}
	if err := c.link.retry(ctx, func(ctx context.Context) error {
		_, err := c.link.actions.UpdateActionResult(ctx, r, callOptions()...)
		return err
	}); err != nil {
		return fmt.Errorf("update action result %s: %w", d, err)
	}
	return nil
}

// GetTree returns the distinct directories of a tree. The root comes first; each other directory
// comes after one that names its digest. Directories that the server does not have, or sends with
// other bytes, are omitted. A missing root is a *MissingError. The messages are not validated
// further.
func (c *Client) GetTree(ctx context.Context, root digest.Digest) ([]*repb.Directory, error) {
	if _, err := c.unique([]digest.Digest{root}); err != nil {
		return nil, fmt.Errorf("get tree: %w", err)
	}
	release, err := c.link.slot(ctx)
	if err != nil {
		return nil, fmt.Errorf("get tree %s: %w", root, err)
	}
	defer release()
	t, found := &treeReader{c: c, root: root}, map[digest.Digest]*repb.Directory{}
	b := c.link.newBudget()
	for {
		before := t.token
		err := t.readPages(ctx, func(d digest.Digest, m *repb.Directory, _ []byte) bool {
			found[d] = m
			return true
		})
		if err == nil && t.token == "" {
			break
		}
		if t.token != before {
			b.progress()
			if err == nil {
				continue // the server sends its pages one a call
			}
		} else if err == nil {
			err = status.Errorf(codes.Internal, "page token %.50q repeats the page before it", before)
		}
		if status.Code(err) == codes.NotFound {
			return nil, &cas.MissingError{Digests: []digest.Digest{root}}
		}
		if err := b.pause(ctx, err); err != nil {
			return nil, fmt.Errorf("get tree %s: %w", root, err)
		}
	}
	return ordered(root, c.fn, found)
}

const (
	// treePage is how many directories FetchTree asks for in a page: the first ones come early.
	treePage = 512
	// treePageBytes bounds a page: decoded, empty entries take 44 times as many bytes. It is gRPC's
	// default, which servers heed.
	treePageBytes = 4 << 20
)

// FetchTree asks for the directories of a tree, and calls came for each that the server sends, with
// its digest and its message, until came returns false. The server sends the root first, and may
// omit some. There may be others among them, but none with another message than its digest says.
// A directory that is too large for a page ends it with an error. FetchTree does not try again.
func (c *Client) FetchTree(ctx context.Context, root digest.Digest, came func(d digest.Digest, message []byte) bool) error {
	if _, err := c.unique([]digest.Digest{root}); err != nil {
		return fmt.Errorf("fetch tree: %w", err)
	}
	release, err := c.downloadSlot(ctx)
	if err != nil {
		return fmt.Errorf("fetch tree %s: %w", root, err)
	}
	defer release()
	t := &treeReader{c: c, root: root, pageSize: treePage, options: []grpc.CallOption{grpc.MaxCallRecvMsgSize(treePageBytes)}}
	for before := ""; ; before = t.token {
		goOn := true
		if err := t.readPages(ctx, func(d digest.Digest, _ *repb.Directory, message []byte) bool {
			goOn = came(d, message)
			return goOn
		}); err != nil {
			return fmt.Errorf("fetch tree %s: %w", root, err)
		}
		if !goOn || t.token == "" || t.token == before {
			return nil
		}
	}
}

// A treeReader reads the pages of one GetTree.
type treeReader struct {
	c        *Client
	root     digest.Digest
	pageSize int32             // 0: as the server likes
	options  []grpc.CallOption // beside the usual ones
	token    string            // of the page to go on with
}

// readPages reads one stream from t.token on, until came returns false.
func (t *treeReader) readPages(ctx context.Context, came func(digest.Digest, *repb.Directory, []byte) bool) error {
	watch := newWatch(ctx, t.c.link.options.StallAfter)
	defer watch.stop()
	r := &repb.GetTreeRequest{
		InstanceName: t.c.instance, RootDigest: t.root.Proto(), PageSize: t.pageSize, PageToken: t.token,
		DigestFunction: t.c.fn.Proto(),
	}
	var stream repb.ContentAddressableStorage_GetTreeClient
	if err := watch.step(func() (err error) {
		stream, err = t.c.link.storage.GetTree(watch.ctx, r, append(callOptions(), t.options...)...)
		return err
	}); err != nil {
		return err
	}
	for {
		var page *repb.GetTreeResponse
		err := watch.step(func() (err error) {
			page, err = stream.Recv()
			return err
		})
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		for _, m := range page.GetDirectories() {
			d, message, err := digest.OfMessage(t.c.fn, m)
			if err != nil {
				return err
			}
			if !came(d, m, message) {
				return nil
			}
		}
		t.token = page.GetNextPageToken()
	}
}

// ordered returns the directories of a tree from its root on. Unreachable ones do not belong to it.
func ordered(root digest.Digest, fn digest.Function, found map[digest.Digest]*repb.Directory) ([]*repb.Directory, error) {
	first, ok := found[root]
	if !ok {
		return nil, fmt.Errorf("get tree %s: %w: the root is not among the directories sent", root, cas.ErrCorrupt)
	}
	delete(found, root)
	tree := []*repb.Directory{first}
	for i := 0; i < len(tree); i++ {
		for _, node := range tree[i].GetDirectories() {
			d, err := digest.FromProto(fn, node.GetDigest())
			if err != nil {
				return nil, fmt.Errorf("get tree %s: directory %.100q: %w", root, node.GetName(), err)
			}
			if m, ok := found[d]; ok {
				delete(found, d)
				tree = append(tree, m)
			}
		}
	}
	return tree, nil
}

// WithGrant returns a context whose calls present a grant; an empty grant is none.
func WithGrant(ctx context.Context, grant string) context.Context {
	if grant == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, names.GrantHeader, grant)
}
