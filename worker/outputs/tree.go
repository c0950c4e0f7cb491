package outputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/fault"
)

// maxTreeDepth bounds how deep an output directory may be nested. A path of the
// kernel's limit of 4,096 bytes has at most half as many components.
const maxTreeDepth = 2048

// A treeBuilder makes the Tree message of an output directory: every distinct
// Directory once, a parent before its children.
type treeBuilder struct {
	o    *Outputs
	root *os.Root
	seen map[digest.Digest]bool
	// anew has the input directories whose messages had to be encoded anew, by their digests, and the
	// digests that they have now: one of them may be at very many paths.
	anew map[digest.Digest]digest.Digest
	// Children in the order in which they were finished: children first.
	finished []*repb.Directory
}

// addDirectory stores a directory in the form that the command asked for.
func (o *Outputs) addDirectory(ctx context.Context, root *os.Root, want Path) error {
	b := &treeBuilder{o: o, root: root, seen: map[digest.Digest]bool{}, anew: map[digest.Digest]digest.Digest{}}
	top, topDigest, err := b.build(ctx, want.Full, 0)
	if err != nil {
		return err
	}
	out := &repb.OutputDirectory{Path: want.Given}
	format := o.opts.Format
	if format != repb.Command_DIRECTORY_ONLY {
		b.finished = b.finished[:len(b.finished)-1] // the top is not a child
		slices.Reverse(b.finished)
		d, err := o.message(ctx, &repb.Tree{Root: top, Children: b.finished})
		if err != nil {
			return err
		}
		out.TreeDigest = d.Proto()
		out.IsTopologicallySorted = true
	}
	if format != repb.Command_TREE_ONLY {
		out.RootDirectoryDigest = topDigest.Proto()
	}
	o.Result.OutputDirectories = append(o.Result.OutputDirectories, out)
	return nil
}

// build makes the message of one directory after those below it. It is nil for one that was made
// before.
func (b *treeBuilder) build(ctx context.Context, full string, depth int) (*repb.Directory, digest.Digest, error) {
	if depth > maxTreeDepth {
		return nil, digest.Digest{}, fault.Errorf(codes.InvalidArgument, "is nested deeper than %d directories", maxTreeDepth)
	}
	if err := ctx.Err(); err != nil {
		return nil, digest.Digest{}, err
	}
	input, same := b.o.opts.Root.Unchanged(full)
	if same = same && input.Kind == vfs.Directory; same {
		if d, ok := b.anew[input.Digest]; ok {
			return nil, d, nil
		}
		if m, ok, err := b.unchanged(ctx, input.Digest, depth); ok || err != nil {
			return m, input.Digest, err
		}
	}
	entries, err := b.readDir(ctx, full)
	if err != nil {
		return nil, digest.Digest{}, err
	}
	m := &repb.Directory{}
	for _, entry := range entries {
		if err := b.addEntry(ctx, m, path.Join(full, entry.Name()), entry, depth); err != nil {
			return nil, digest.Digest{}, err
		}
	}
	d, raw, err := digest.OfMessage(b.o.opts.Function, m)
	if err != nil {
		return m, d, err
	}
	if same {
		b.anew[input.Digest] = d
	}
	return m, d, b.finish(ctx, m, d, raw)
}

// finish adds a directory to the Tree, once.
func (b *treeBuilder) finish(ctx context.Context, m *repb.Directory, d digest.Digest, raw []byte) error {
	if b.seen[d] {
		return nil
	}
	b.seen[d] = true
	b.finished = append(b.finished, m)
	if b.o.opts.Format == repb.Command_TREE_ONLY {
		return nil
	}
	return b.o.bytes(ctx, d, raw)
}

// unchanged adds the input directory d and all below it without looking at the
// file system, each once however often it occurs: m is nil the next time. ok is
// false when what is below must be looked at: a client finds the children of a
// Tree by the digest of what it encodes itself, so each message must have been
// encoded in the usual way.
func (b *treeBuilder) unchanged(ctx context.Context, d digest.Digest, depth int) (m *repb.Directory, ok bool, err error) {
	if depth > maxTreeDepth {
		return nil, false, fault.Errorf(codes.InvalidArgument, "is nested deeper than %d directories", maxTreeDepth)
	}
	if b.seen[d] {
		return nil, true, nil
	}
	input, err := b.o.opts.Inputs.Directory(ctx, d)
	if err != nil {
		return nil, false, err
	}
	m = &repb.Directory{}
	if err := proto.Unmarshal(input.Encoded(), m); err != nil {
		return nil, false, nil // a name is not UTF-8, which build will say
	}
	usual, raw, err := digest.OfMessage(b.o.opts.Function, m)
	if err != nil || usual != d {
		return nil, false, err
	}
	for i := range input.Len() {
		switch input.Kind(i) {
		case vfs.Symlink:
			continue
		case vfs.File:
			b.o.needs[input.At(i).Digest] = struct{}{}
			continue
		}
		if _, ok, err := b.unchanged(ctx, input.At(i).Digest, depth+1); !ok || err != nil {
			return nil, false, err
		}
	}
	return m, true, b.finish(ctx, m, d, raw)
}

func (b *treeBuilder) addEntry(
	ctx context.Context, m *repb.Directory, full string, entry fs.DirEntry, depth int,
) error {
	name := entry.Name()
	if !utf8.ValidString(name) {
		return fault.Errorf(codes.InvalidArgument, "%.200q: its name is not UTF-8, which a result cannot hold", full)
	}
	switch entry.Type() {
	case fs.ModeDir:
		_, d, err := b.build(ctx, full, depth+1)
		if err != nil {
			return err
		}
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: d.Proto()})
	case fs.ModeSymlink:
		target, err := readlink(b.root, full)
		if err != nil {
			return fmt.Errorf("%.200q: %w", full, err)
		}
		m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: name, Target: target})
	case 0:
		info, err := b.root.Lstat(full)
		if err != nil {
			return err
		}
		node, err := b.o.fileNode(ctx, b.root, full, info)
		if err != nil {
			return fmt.Errorf("%.200q: %w", full, err)
		}
		node.Name = name
		m.Files = append(m.Files, node)
	default:
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return fmt.Errorf("%.200q: %w", full, notPlain(info))
	}
	return nil
}

// readlink returns the target of a symlink, in a form that a result can hold.
func readlink(root *os.Root, full string) (string, error) {
	target, err := root.Readlink(full)
	if err == nil && !utf8.ValidString(target) {
		err = fault.Errorf(codes.InvalidArgument, "its target %.200q is not UTF-8, which a result cannot hold", target)
	}
	return target, err
}

// namesAtOnce is how many names of a directory are read before anybody looks whether to go on.
const namesAtOnce = 4096

// readDir lists a directory in the order that REv2 wants.
func (b *treeBuilder) readDir(ctx context.Context, full string) (entries []fs.DirEntry, err error) {
	f, err := b.root.Open(full)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for !errors.Is(err, io.EOF) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var more []fs.DirEntry
		if more, err = f.ReadDir(namesAtOnce); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if err := b.o.admitNames(len(more)); err != nil {
			return nil, err
		}
		entries = append(entries, more...)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}
