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
	top  int // depth of the output directory
	seen map[digest.Digest]bool
	// anew maps the digests of input directories whose messages were encoded again to their new
	// digests: one of them may be at very many paths.
	anew map[digest.Digest]digest.Digest
	// unusual has the directories that unchanged found to be unusual, or to have an unusual one
	// below.
	unusual map[digest.Digest]bool
	// Children in the order in which they were finished: children first.
	finished []*repb.Directory
}

// addDirectory stores a directory in the folder in, in the form that the command asked for.
func (o *Outputs) addDirectory(ctx context.Context, in *folder, want Path) error {
	b := &treeBuilder{
		o: o, top: in.depth + 1, seen: map[digest.Digest]bool{}, anew: map[digest.Digest]digest.Digest{}, unusual: map[digest.Digest]bool{},
	}
	top, topDigest, err := b.build(ctx, in, path.Base(want.Full))
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

// build makes the message of the directory name in the open folder, after those below it. It is nil
// if the message exists already. The folder in may be closed afterwards.
func (b *treeBuilder) build(ctx context.Context, in *folder, name string) (*repb.Directory, digest.Digest, error) {
	f := in.child(name)
	depth := f.depth - b.top
	if depth > maxTreeDepth {
		return nil, digest.Digest{}, fault.Errorf(codes.InvalidArgument, "is nested deeper than %d directories", maxTreeDepth)
	}
	if err := ctx.Err(); err != nil {
		return nil, digest.Digest{}, err
	}
	input, same := in.layer.Unchanged(name)
	if same = same && input.Kind == vfs.Directory; same {
		if d, ok := b.anew[input.Digest]; ok {
			return nil, d, nil
		}
		if m, ok, err := b.unchanged(ctx, input.Digest, depth); ok || err != nil {
			return m, input.Digest, err
		}
	}
	if err := f.open(); err != nil {
		return nil, digest.Digest{}, err
	}
	defer f.close()
	in.leave()
	m, err := b.read(ctx, f)
	if err != nil {
		return nil, digest.Digest{}, err
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

// read makes the message of the open folder f, which may be closed afterwards.
func (b *treeBuilder) read(ctx context.Context, f *folder) (*repb.Directory, error) {
	entries, err := b.readDir(ctx, f)
	if err != nil {
		return nil, err
	}
	m := &repb.Directory{}
	for _, entry := range entries {
		if !utf8.ValidString(entry.Name()) {
			return nil, fault.Errorf(codes.InvalidArgument, "%.200q: its name is not UTF-8, which a result cannot hold", f.path(entry.Name()))
		}
		if entry.IsDir() {
			continue
		}
		if err := b.addEntry(ctx, m, f, entry); err != nil {
			return nil, err
		}
	}
	// Directories come last, because deep ones close the folder in between.
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if err := f.open(); err != nil {
			return nil, err
		}
		_, d, err := b.build(ctx, f, entry.Name())
		if err != nil {
			return nil, err
		}
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: entry.Name(), Digest: d.Proto()})
	}
	return m, nil
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

// unchanged adds the input directory d and all below it without access to the file system, each
// once however often it occurs: m is nil the next time. ok is false if the directories below must
// be read: a client finds the children of a Tree by the digest of its own encoding, so each message
// must have the usual encoding.
func (b *treeBuilder) unchanged(ctx context.Context, d digest.Digest, depth int) (m *repb.Directory, ok bool, err error) {
	if depth > maxTreeDepth {
		return nil, false, fault.Errorf(codes.InvalidArgument, "is nested deeper than %d directories", maxTreeDepth)
	}
	if b.seen[d] || b.unusual[d] {
		return nil, b.seen[d], nil
	}
	if m, ok, err = b.usual(ctx, d, depth); !ok && err == nil {
		b.unusual[d] = true
	}
	return m, ok, err
}

// usual is unchanged for a directory that was not seen yet.
func (b *treeBuilder) usual(ctx context.Context, d digest.Digest, depth int) (m *repb.Directory, ok bool, err error) {
	input, err := b.o.opts.Inputs.Directory(ctx, d)
	if err != nil {
		return nil, false, err
	}
	if err := b.o.admitUnchanged(input); err != nil {
		return nil, false, err
	}
	m = &repb.Directory{}
	if err := proto.Unmarshal(input.Encoded(), m); err != nil {
		return nil, false, nil // a name is not UTF-8; build reports it
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

// addEntry adds a non-directory of the open folder f.
func (b *treeBuilder) addEntry(ctx context.Context, m *repb.Directory, f *folder, entry fs.DirEntry) error {
	name := entry.Name()
	if entry.Type() == fs.ModeSymlink {
		target, err := readlink(f.root, name)
		if err != nil {
			return fmt.Errorf("%.200q: %w", f.path(name), err)
		}
		if err := b.o.admitText(len(target)); err != nil {
			return err
		}
		m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: name, Target: target})
		return nil
	}
	info, err := f.root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%.200q: %w", f.path(name), notPlain(info))
	}
	node, err := b.o.fileNode(ctx, f, name, info)
	if err != nil {
		return fmt.Errorf("%.200q: %w", f.path(name), err)
	}
	node.Name = name
	m.Files = append(m.Files, node)
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

// namesAtOnce is the number of names that are read from a directory between checks of the context.
const namesAtOnce = 4096

// readDir lists an open folder in the order that REv2 requires.
func (b *treeBuilder) readDir(ctx context.Context, in *folder) (entries []fs.DirEntry, err error) {
	f, err := in.root.Open(".")
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
		if err := b.o.admitNames(more); err != nil {
			return nil, err
		}
		entries = append(entries, more...)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}
