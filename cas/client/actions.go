package client

import (
	"context"
	"fmt"
	"io"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
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
	t := &treeReader{c: c, root: root, found: map[digest.Digest]*repb.Directory{}}
	b := c.link.newBudget()
	for {
		before := t.token
		err := t.readPages(ctx)
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
	return t.ordered()
}

// A treeReader gathers the pages of one GetTree.
type treeReader struct {
	c     *Client
	root  digest.Digest
	found map[digest.Digest]*repb.Directory
	token string // of the page to go on with
}

// readPages reads one stream from t.token on.
func (t *treeReader) readPages(ctx context.Context) error {
	watch := newWatch(ctx, t.c.link.options.StallAfter)
	defer watch.stop()
	r := &repb.GetTreeRequest{
		InstanceName: t.c.instance, RootDigest: t.root.Proto(), PageToken: t.token, DigestFunction: t.c.fn.Proto(),
	}
	var stream repb.ContentAddressableStorage_GetTreeClient
	if err := watch.step(func() (err error) {
		stream, err = t.c.link.storage.GetTree(watch.ctx, r, callOptions()...)
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
			d, _, err := digest.OfMessage(t.c.fn, m)
			if err != nil {
				return err
			}
			t.found[d] = m
		}
		t.token = page.GetNextPageToken()
	}
}

// ordered walks the found directories from the root. Unreachable ones do not belong to the tree.
func (t *treeReader) ordered() ([]*repb.Directory, error) {
	root, ok := t.found[t.root]
	if !ok {
		return nil, fmt.Errorf("get tree %s: %w: the root is not among the directories sent", t.root, cas.ErrCorrupt)
	}
	delete(t.found, t.root)
	tree := []*repb.Directory{root}
	for i := 0; i < len(tree); i++ {
		for _, node := range tree[i].GetDirectories() {
			d, err := digest.FromProto(t.c.fn, node.GetDigest())
			if err != nil {
				return nil, fmt.Errorf("get tree %s: directory %.100q: %w", t.root, node.GetName(), err)
			}
			if m, ok := t.found[d]; ok {
				delete(t.found, d)
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
