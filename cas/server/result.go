package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// checkResult reports whether r is well-formed: digests, and output paths that
// stay below the working directory (REv2, "ActionResult").
func checkResult(fn digest.Function, r *repb.ActionResult) error {
	for what, m := range map[string]*repb.Digest{
		"stdout_digest": r.GetStdoutDigest(), "stderr_digest": r.GetStderrDigest(),
	} {
		if err := checkOptional(fn, m); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	paths := map[string]struct{}{}
	for _, f := range r.GetOutputFiles() {
		if err := checkOutputPath(f.GetPath(), paths); err != nil {
			return err
		}
		if f.GetDigest() == nil && len(f.GetContents()) > 0 {
			continue // storeInline will set it
		}
		if _, err := digest.FromProto(fn, f.GetDigest()); err != nil {
			return fmt.Errorf("output file %.200q: %w", f.GetPath(), err)
		}
	}
	for _, d := range r.GetOutputDirectories() {
		if err := checkOutputDirectory(fn, d, paths); err != nil {
			return err
		}
	}
	// The three lists may repeat each other, for clients of API 2.0.
	for _, list := range [][]*repb.OutputSymlink{
		r.GetOutputSymlinks(),
		r.GetOutputFileSymlinks(),      //lint:ignore SA1019 clients of API 2.0 send it
		r.GetOutputDirectorySymlinks(), //lint:ignore SA1019 clients of API 2.0 send it
	} {
		for _, l := range list {
			if err := checkOutputPath(l.GetPath(), nil); err != nil {
				return err
			}
			if l.GetTarget() == "" || strings.IndexByte(l.GetTarget(), 0) >= 0 {
				return fmt.Errorf("output symlink %.200q has the target %.200q", l.GetPath(), l.GetTarget())
			}
		}
	}
	return nil
}

func checkOptional(fn digest.Function, m *repb.Digest) error {
	if m == nil {
		return nil
	}
	_, err := digest.FromProto(fn, m)
	return err
}

func checkOutputDirectory(fn digest.Function, d *repb.OutputDirectory, paths map[string]struct{}) error {
	// The empty path is the working directory itself.
	if d.GetPath() != "" {
		if err := checkOutputPath(d.GetPath(), paths); err != nil {
			return err
		}
	}
	if d.GetTreeDigest() == nil && d.GetRootDirectoryDigest() == nil {
		return fmt.Errorf("output directory %.200q has no digest", d.GetPath())
	}
	for _, m := range []*repb.Digest{d.GetTreeDigest(), d.GetRootDirectoryDigest()} {
		if err := checkOptional(fn, m); err != nil {
			return fmt.Errorf("output directory %.200q: %w", d.GetPath(), err)
		}
	}
	return nil
}

// checkOutputPath checks one path and adds it to those seen; seen may be nil.
func checkOutputPath(path string, seen map[string]struct{}) error {
	if path == "" || path[0] == '/' || strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("output path %.200q is not a relative path", path)
	}
	for s := range strings.SplitSeq(path, "/") {
		if s == ".." {
			return fmt.Errorf("output path %.200q leads upwards", path)
		}
	}
	if seen == nil {
		return nil
	}
	if _, twice := seen[path]; twice {
		return fmt.Errorf("output path %.200q occurs twice", path)
	}
	seen[path] = struct{}{}
	return nil
}

// references gathers distinct digests. After the first malformed one err is set.
type references struct {
	fn   digest.Function
	ds   []digest.Digest
	seen map[digest.Digest]struct{}
	err  error
}

func (r *references) add(m *repb.Digest) {
	if m == nil || r.err != nil {
		return
	}
	d, err := digest.FromProto(r.fn, m)
	if err != nil {
		r.err = err
		return
	}
	r.addAll([]digest.Digest{d})
}

func (r *references) addAll(ds []digest.Digest) {
	for _, d := range ds {
		if _, twice := r.seen[d]; !twice {
			r.seen[d] = struct{}{}
			r.ds = append(r.ds, d)
		}
	}
}

// missingOf returns which of the blobs that result needs are not there, having looked at them as FindUnsound does. It
// looks into Trees and directories only when they are all there.
func (c catalog) missingOf(
	ctx context.Context, fn digest.Function, result *repb.ActionResult, stale bool,
) ([]digest.Digest, error) {
	direct := references{fn: fn, seen: map[digest.Digest]struct{}{}}
	direct.add(result.GetStdoutDigest())
	direct.add(result.GetStderrDigest())
	for _, f := range result.GetOutputFiles() {
		direct.add(f.GetDigest())
	}
	for _, d := range result.GetOutputDirectories() {
		direct.add(d.GetTreeDigest())
		direct.add(d.GetRootDirectoryDigest())
	}
	if direct.err != nil {
		return nil, direct.err
	}
	if missing, err := c.FindUnsound(ctx, direct.ds, stale); err != nil || len(missing) > 0 {
		return missing, err
	}
	// What is known to be there need not be looked for again.
	inner := references{fn: fn, seen: direct.seen}
	for _, d := range result.GetOutputDirectories() {
		missing, err := c.addDirectory(ctx, &inner, d)
		if err != nil || len(missing) > 0 {
			return missing, err
		}
	}
	return c.FindUnsound(ctx, inner.ds, stale)
}

// addDirectory adds the files of an output directory, and returns which of its
// Directory messages are missing.
func (c catalog) addDirectory(
	ctx context.Context, refs *references, od *repb.OutputDirectory,
) (missing []digest.Digest, err error) {
	if od.GetTreeDigest() != nil {
		d, err := digest.FromProto(refs.fn, od.GetTreeDigest())
		if err != nil {
			return nil, err
		}
		if err := c.addTree(ctx, refs, d); errors.Is(err, cas.ErrNotFound) {
			return []digest.Digest{d}, nil // evicted this moment
		} else if err != nil {
			return nil, err
		}
	}
	if od.GetRootDirectoryDigest() != nil {
		root, err := digest.FromProto(refs.fn, od.GetRootDirectoryDigest())
		if err != nil {
			return nil, err
		}
		if err := c.walkTree(ctx, root, listed, func(n *treeNode) error {
			if n.missing {
				missing = append(missing, n.digest)
			}
			refs.addAll(n.refs.Files)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return missing, refs.err
}

// addTree adds the files of the Tree d.
func (c catalog) addTree(ctx context.Context, refs *references, d digest.Digest) error {
	b, err := c.readEncoded(ctx, d, "Tree", listed)
	if err != nil {
		return err
	}
	directories, err := tree.SplitTree(b)
	if err != nil {
		return fmt.Errorf("tree %s: %w", d, err)
	}
	for _, encoded := range directories {
		r, err := tree.ReferencesOf(refs.fn, encoded)
		if err != nil {
			return fmt.Errorf("tree %s: %w", d, err)
		}
		refs.addAll(r.Files)
	}
	return nil
}
