package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// CheckResult checks r itself: its digests are well-formed, and its inline contents match them. It
// is for results from external storage.
func CheckResult(fn digest.Function, r *repb.ActionResult) error {
	check := func(what string, content []byte, m *repb.Digest) error {
		if err := checkOptional(fn, m); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if len(content) == 0 || m == nil {
			return nil
		}
		if d := digest.Of(fn, content); !proto.Equal(m, d.Proto()) {
			return fmt.Errorf("%w: inline content of %s has the digest %s", cas.ErrCorrupt, what, d)
		}
		return nil
	}
	err := errors.Join(check("stdout", r.GetStdoutRaw(), r.GetStdoutDigest()), check("stderr", r.GetStderrRaw(), r.GetStderrDigest()))
	for _, f := range r.GetOutputFiles() {
		if f.GetDigest() == nil {
			return fmt.Errorf("output file %.200q has no digest", f.GetPath())
		}
		err = errors.Join(err, check("an output file", f.GetContents(), f.GetDigest()))
	}
	for _, d := range r.GetOutputDirectories() {
		err = errors.Join(err, check("an output directory", nil, d.GetTreeDigest()), check("an output directory", nil, d.GetRootDirectoryDigest()))
	}
	return err
}

// checkResult reports whether r is well-formed: digests, and output paths that
// stay below the working directory and name one thing each (REv2, "ActionResult").
func checkResult(fn digest.Function, r *repb.ActionResult) error {
	for what, m := range map[string]*repb.Digest{
		"stdout_digest": r.GetStdoutDigest(), "stderr_digest": r.GetStderrDigest(),
	} {
		if err := checkOptional(fn, m); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	outputs := outputPaths{given: map[string]struct{}{}, clean: map[string]output{}}
	for _, f := range r.GetOutputFiles() {
		if err := outputs.addOnce(f.GetPath(), outputFile, isFile(fn, f)); err != nil {
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
		if err := checkOutputDirectory(fn, d, outputs); err != nil {
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
			if err := outputs.add(l.GetPath(), outputLink, l.GetTarget()); err != nil {
				return err
			}
			if l.GetTarget() == "" || strings.IndexByte(l.GetTarget(), 0) >= 0 {
				return fmt.Errorf("output symlink %.200q has the target %.200q", l.GetPath(), l.GetTarget())
			}
		}
	}
	return outputs.checkParents()
}

func checkOptional(fn digest.Function, m *repb.Digest) error {
	if m == nil {
		return nil
	}
	_, err := digest.FromProto(fn, m)
	return err
}

func checkOutputDirectory(fn digest.Function, d *repb.OutputDirectory, outputs outputPaths) error {
	if err := outputs.addOnce(d.GetPath(), outputFolder, isFolder(d)); err != nil {
		return err
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

// missingOf returns the blobs of result that are missing, after a check as in FindUnsound. It reads
// Trees and directories only when they are all present. Clients must be able to make files of a
// result that is about to be written.
func (c catalog) missingOf(
	ctx context.Context, fn digest.Function, result *repb.ActionResult, written bool,
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
	if missing, err := c.FindUnsound(ctx, direct.ds, written); err != nil || len(missing) > 0 {
		return missing, err
	}
	// Known ones need no second check.
	inner := references{fn: fn, seen: direct.seen}
	for _, d := range result.GetOutputDirectories() {
		missing, err := c.addDirectory(ctx, &inner, d, written)
		if err != nil || len(missing) > 0 {
			return missing, err
		}
	}
	return c.FindUnsound(ctx, inner.ds, written)
}

// addDirectory adds the files of an output directory, and returns which of its
// Directory messages are missing.
func (c catalog) addDirectory(
	ctx context.Context, refs *references, od *repb.OutputDirectory, written bool,
) (missing []digest.Digest, err error) {
	if od.GetTreeDigest() != nil {
		d, err := digest.FromProto(refs.fn, od.GetTreeDigest())
		if err != nil {
			return nil, err
		}
		if err := c.addTree(ctx, refs, d, od.GetRootDirectoryDigest(), written); errors.Is(err, cas.ErrNotFound) {
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
			} else if written {
				if err := tree.Check(refs.fn, n.encoded); err != nil {
					return fmt.Errorf("directory %s: %w", n.digest, err)
				}
			}
			refs.addAll(n.refs.Files)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return missing, refs.err
}

// addTree adds the files of the Tree d. root is the directory that is declared the same, if any.
func (c catalog) addTree(ctx context.Context, refs *references, d digest.Digest, root *repb.Digest, written bool) error {
	b, err := c.readEncoded(ctx, d, "Tree", listed)
	if err != nil {
		return err
	}
	if written {
		top, err := tree.CheckTree(refs.fn, b)
		if err != nil {
			return fmt.Errorf("tree %s: %w", d, err)
		}
		if of := digest.Of(refs.fn, top); root != nil && !proto.Equal(root, of.Proto()) {
			return fmt.Errorf("tree %s: %w: its root is %s, but root_directory_digest is %s", d, tree.ErrInvalid, of, root.GetHash())
		}
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
