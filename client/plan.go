package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// The bounds of a result.
const (
	// maxOutputs limits the outputs of one result. A Tree that refers to a folder many times on
	// each level expands to exponentially many files.
	maxOutputs = 1 << 20
	// maxPathBytes is the maximum length of a path on Linux (PATH_MAX). It also limits the depth of
	// a Tree.
	maxPathBytes = 4095
)

// A plan lists the checked outputs of a result. Paths are relative, clean, and slash-separated.
type plan struct {
	client *casclient.Client
	fn     digest.Function
	limit  int // maximum number of dirs, files and links together
	dirs   []string
	files  []plannedFile
	links  []plannedLink
	seen   map[string]struct{} // paths of files and links
}

type plannedFile struct {
	path       string
	digest     digest.Digest
	executable bool
	inline     []byte // the content, if it is in the result
}

type plannedLink struct {
	path, target string
}

// addResult adds everything in r to the plan. It reads the Trees.
func (p *plan) addResult(ctx context.Context, r *repb.ActionResult) error {
	for _, f := range r.GetOutputFiles() {
		if err := p.addFile(f.GetPath(), f); err != nil {
			return err
		}
	}
	for _, links := range [][]*repb.OutputSymlink{
		r.GetOutputSymlinks(),
		//lint:ignore SA1019 older servers set these fields
		r.GetOutputFileSymlinks(), r.GetOutputDirectorySymlinks(),
	} {
		for _, l := range links {
			if err := p.addLink(l.GetPath(), l.GetTarget()); err != nil {
				return err
			}
		}
	}
	for _, d := range r.GetOutputDirectories() {
		if err := p.addOutputDirectory(ctx, d); err != nil {
			return fmt.Errorf("output folder %q: %w", d.GetPath(), err)
		}
	}
	return nil
}

// A file is the common part of OutputFile and FileNode.
type file interface {
	GetDigest() *repb.Digest
	GetIsExecutable() bool
}

func (p *plan) addFile(at string, f file) error {
	d, err := digest.FromProto(p.fn, f.GetDigest())
	if err != nil {
		return fmt.Errorf("output file %q: %w", at, err)
	}
	planned := plannedFile{path: at, digest: d, executable: f.GetIsExecutable()}
	if o, ok := f.(*repb.OutputFile); ok && len(o.GetContents()) > 0 {
		if digest.Of(p.fn, o.GetContents()) != d {
			return fmt.Errorf("output file %q: inline contents: %w", at, cas.ErrCorrupt)
		}
		planned.inline = o.GetContents()
	}
	if err := p.claim(at); err != nil {
		return fmt.Errorf("output file %q: %w", at, err)
	}
	p.files = append(p.files, planned)
	return nil
}

func (p *plan) addLink(at, target string) error {
	if err := p.claim(at); err != nil {
		return fmt.Errorf("output symlink %q: %w", at, err)
	}
	if !staysInside(at, target) {
		return fmt.Errorf("output symlink %q: its target %q is outside of the outputs", at, target)
	}
	p.links = append(p.links, plannedLink{path: at, target: target})
	return nil
}

// claim checks the path of a file or symlink.
func (p *plan) claim(at string) error {
	if err := checkPath(at); err != nil {
		return err
	}
	if _, twice := p.seen[at]; twice {
		return errors.New("occurs more than once")
	}
	if p.seen == nil {
		p.seen = map[string]struct{}{}
	}
	p.seen[at] = struct{}{}
	return p.bound()
}

func (p *plan) bound() error {
	if len(p.seen)+len(p.dirs) > p.limit {
		return fmt.Errorf("the result has more than %d outputs", p.limit)
	}
	return nil
}

// checkPath returns an error unless the path is valid and below the folder of the outputs.
func checkPath(at string) error {
	if at == "." || !fs.ValidPath(at) || strings.IndexByte(at, 0) >= 0 {
		return errors.New("is not a clean relative path")
	}
	if len(at) > maxPathBytes {
		return fmt.Errorf("is longer than %d bytes", maxPathBytes)
	}
	return nil
}

// staysInside reports whether a symlink at the path at cannot lead out of the outputs. ".." is
// valid only at the start of target: after a name it is not, because the name may be a symlink with
// an unknown target.
func staysInside(at, target string) bool {
	if target == "" || path.IsAbs(target) || strings.IndexByte(target, 0) >= 0 {
		return false
	}
	depth, named := strings.Count(at, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part != "..":
			named = true
		case named || depth == 0:
			return false
		default:
			depth--
		}
	}
	return true
}

// addOutputDirectory adds the tree d to the plan.
func (p *plan) addOutputDirectory(ctx context.Context, d *repb.OutputDirectory) error {
	t := &outputTree{plan: p, folders: map[digest.Digest]*repb.Directory{}}
	root, err := t.load(ctx, d)
	if err != nil {
		return err
	}
	return t.add(d.GetPath(), root)
}

// An outputTree is an output folder with all its Directory messages.
type outputTree struct {
	*plan
	folders map[digest.Digest]*repb.Directory
}

// load reads the messages of d and returns the topmost one.
func (t *outputTree) load(ctx context.Context, d *repb.OutputDirectory) (*repb.Directory, error) {
	if d.GetTreeDigest() == nil {
		return t.loadRoot(ctx, d.GetRootDirectoryDigest())
	}
	of, err := digest.FromProto(t.fn, d.GetTreeDigest())
	if err != nil {
		return nil, fmt.Errorf("tree: %w", err)
	}
	b, err := t.client.Read(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("read tree: %w", err)
	}
	m := &repb.Tree{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("tree %s: %w", of, err)
	}
	if err := t.index(m.GetChildren()); err != nil {
		return nil, err
	}
	_, err = t.check(m.GetRoot())
	return m.GetRoot(), err
}

// loadRoot reads the messages of a folder without a Tree.
func (t *outputTree) loadRoot(ctx context.Context, root *repb.Digest) (*repb.Directory, error) {
	of, err := digest.FromProto(t.fn, root)
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	if of.IsEmptyBlob() {
		return nil, nil
	}
	all, err := t.client.GetTree(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("read folders: %w", err)
	}
	return all[0], t.index(all)
}

func (t *outputTree) index(messages []*repb.Directory) error {
	for _, m := range messages {
		d, err := t.check(m)
		if err != nil {
			return err
		}
		t.folders[d] = m
	}
	return nil
}

// check returns the digest of m, or an error if m is not a valid Directory.
func (t *outputTree) check(m *repb.Directory) (digest.Digest, error) {
	d, b, err := digest.OfMessage(t.fn, m)
	if err == nil {
		_, err = tree.Parse(t.fn, b)
	}
	return d, err
}

// add adds m, which must be checked, and everything below it to the plan. at is the path of m. A
// folder cannot contain itself, because its digest depends on its content.
func (t *outputTree) add(at string, m *repb.Directory) error {
	if at != "" { // at is "" for the folder of all outputs
		if err := checkPath(at); err != nil {
			return err
		}
	}
	t.dirs = append(t.dirs, path.Join(".", at))
	if err := t.bound(); err != nil {
		return err
	}
	for _, f := range m.GetFiles() {
		if err := t.addFile(path.Join(at, f.GetName()), f); err != nil {
			return err
		}
	}
	for _, l := range m.GetSymlinks() {
		if err := t.addLink(path.Join(at, l.GetName()), l.GetTarget()); err != nil {
			return err
		}
	}
	for _, child := range m.GetDirectories() {
		d, err := digest.FromProto(t.fn, child.GetDigest())
		if err != nil {
			return err
		}
		c := t.folders[d]
		if c == nil && !d.IsEmptyBlob() {
			return fmt.Errorf("folder %q: %s is not in the tree", path.Join(at, child.GetName()), d)
		}
		if err := t.add(path.Join(at, child.GetName()), c); err != nil {
			return err
		}
	}
	return nil
}
