package outputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"slices"
	"syscall"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/fault"
)

// maxInlineBytes is up to which size stdout and stderr travel in the result.
const maxInlineBytes = 4 << 10

// Outputs collect the outputs of a command, first into the worker's store, then into storage. Until
// Release the store evicts none of them.
type Outputs struct {
	opts Options
	// Result is the action's result, as far as outputs are concerned.
	Result *repb.ActionResult
	blobs  map[digest.Digest]casclient.Blob
	// needs has all blobs that the result needs, including unchanged inputs.
	needs map[digest.Digest]struct{}
	unpin []func()
	// movable: outputs may be moved into the store, because nobody can write to them later, and
	// none is part of another output. taken has stored outputs, if movable.
	movable bool
	taken   map[string]digest.Digest
	// The command's own output, for the Policy.
	madeFiles int
	madeBytes int64
	names     int // seen in directories
	text      int // bytes of names and targets
	// Of input directories that are returned as they are.
	unchanged, unchangedNames int
	patience                  *patience
}

// A Root is the folder that a command worked in; vfs.Root documents its methods.
type Root interface {
	Unchanged(path string) (vfs.Input, bool)
	Written(path string) (string, bool)
	Enter(path string) (vfs.Dir, error)
}

// Source has the inputs, and fetches those that are not in the worker's store.
type Source interface {
	Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error)
	OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error)
}

// Options are the source and the destination of outputs.
type Options struct {
	Spec
	Policy   Policy
	Function digest.Function
	Root     Root
	Inputs   Source
	Store    *disk.Store
	Storage  *casclient.Client
	Instance string // of the action
	// Vacated says that no process has the command's files open: they may be moved instead of
	// copied.
	Vacated bool
}

// New returns empty Outputs.
func New(o Options) *Outputs {
	return &Outputs{
		opts: o, Result: &repb.ActionResult{}, blobs: map[digest.Digest]casclient.Blob{},
		needs: map[digest.Digest]struct{}{}, taken: map[string]digest.Digest{},
	}
}

// A Stream is a file that a command printed to.
type Stream struct {
	File      string
	Truncated bool // the rest of its output is missing
}

// Streams stores stdout and stderr.
func (o *Outputs) Streams(ctx context.Context, stdout, stderr Stream) error {
	var err error
	if o.Result.StdoutRaw, o.Result.StdoutDigest, err = o.stream(ctx, stdout); err != nil {
		return fmt.Errorf("store stdout: %w", err)
	}
	if o.Result.StderrRaw, o.Result.StderrDigest, err = o.stream(ctx, stderr); err != nil {
		return fmt.Errorf("store stderr: %w", err)
	}
	return nil
}

// stream returns a short output whole, and the digest of a long one.
func (o *Outputs) stream(ctx context.Context, s Stream) ([]byte, *repb.Digest, error) {
	name := s.File
	if s.Truncated {
		if err := markTruncated(name); err != nil {
			return nil, nil, err
		}
	}
	// Most commands print nothing, and to open a file costs several times as much.
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return nil, nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Size == 0 {
		return nil, nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	head, err := io.ReadAll(io.LimitReader(f, maxInlineBytes+1))
	// Closed, or it could not be moved.
	if err = errors.Join(err, f.Close()); err != nil || len(head) <= maxInlineBytes {
		return head, nil, err
	}
	var d digest.Digest
	if o.opts.Vacated {
		d, err = o.opts.Store.Take(ctx, name, o.opts.Function)
	} else {
		d, err = o.copy(ctx, func() (*os.File, error) { return os.Open(name) })
	}
	return nil, d.Proto(), o.stored(ctx, d, err)
}

// markTruncated marks the end of truncated output.
func markTruncated(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n[output was longer than the worker keeps; the rest was dropped]\n")
	return errors.Join(err, f.Close())
}

// A foundPath is the file at an output's path in the root.
type foundPath struct {
	Path
	info     fs.FileInfo
	straight bool // no symlink leads to its folder
}

// Collect finds every output in the root and stores it. It omits missing ones, as REv2 requires.
// One output may be part of another. If an output is invalid, the others are stored all the same.
func (o *Outputs) Collect(ctx context.Context, root *os.Root) error {
	ctx, o.patience = newPatience(ctx)
	defer o.patience.timer.Stop()
	found, fault := o.find(ctx, root)
	o.movable = o.opts.Vacated && !entangled(found)
	in := o.topFolder(root)
	defer func() { in.to(".") }()
	for _, at := range found {
		in = in.to(path.Dir(at.Full))
		if err := o.add(ctx, in, at); err != nil {
			return o.tooSlow(ctx, fmt.Errorf("output %.200q: %w", at.Given, err))
		}
	}
	return o.tooSlow(ctx, fault)
}

// find finds every output in the root, and reads symlinks, whose targets may be gone later. It
// returns valid outputs before the error of an invalid one.
func (o *Outputs) find(ctx context.Context, root *os.Root) (found []foundPath, err error) {
	look, err := newLookout(root)
	if err != nil {
		return nil, err
	}
	defer look.close()
	for _, want := range o.opts.Paths {
		if err := ctx.Err(); err != nil {
			return found, err
		}
		o.patience.grant(1, 0)
		info, straight, err := look.lstat(want.Full)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			return found, pathFault("output", want.Given, err)
		case info.Mode().Type() != fs.ModeSymlink:
			found = append(found, foundPath{want, info, straight})
			continue
		}
		target, err := readlink(root, want.Full)
		if err != nil {
			return found, fmt.Errorf("output %.200q: %w", want.Given, err)
		}
		o.addSymlink(root, want, target)
	}
	return found, nil
}

// add stores the output at, which is in the folder in.
func (o *Outputs) add(ctx context.Context, in *folder, at foundPath) error {
	switch {
	case at.info.Mode().IsRegular():
		if at.Kind == Directory {
			return fault.Errorf(codes.InvalidArgument, "is a file, a directory was asked for")
		}
		node, err := o.fileNode(ctx, in, path.Base(at.Full), at.info)
		if err != nil {
			return err
		}
		o.Result.OutputFiles = append(o.Result.OutputFiles, &repb.OutputFile{
			Path: at.Given, Digest: node.GetDigest(), IsExecutable: node.GetIsExecutable(),
		})
	case at.info.IsDir():
		if at.Kind == File {
			return fault.Errorf(codes.InvalidArgument, "is a directory, a file was asked for")
		}
		return o.addDirectory(ctx, in, at.Path)
	default:
		return notPlain(at.info)
	}
	return nil
}

// addSymlink reports a symlink as one, in the field that the client reads.
func (o *Outputs) addSymlink(root *os.Root, want Path, target string) {
	link := &repb.OutputSymlink{Path: want.Given, Target: target}
	if want.Kind == Any {
		o.Result.OutputSymlinks = append(o.Result.OutputSymlinks, link)
		return
	}
	// The link is followed inside the root only; a link to the outside or to nothing counts as the
	// kind that the client asked for.
	info, err := root.Stat(want.Full)
	if (err == nil && info.IsDir()) || (err != nil && want.Kind == Directory) {
		//lint:ignore SA1019 the field that clients of API 2.0 read
		o.Result.OutputDirectorySymlinks = append(o.Result.OutputDirectorySymlinks, link)
		return
	}
	//lint:ignore SA1019 the field that clients of API 2.0 read
	o.Result.OutputFileSymlinks = append(o.Result.OutputFileSymlinks, link)
}

// fileNode stores the file called name in the folder f, whose layer is open. An unchanged input
// keeps its digest unread.
func (o *Outputs) fileNode(ctx context.Context, f *folder, name string, info fs.FileInfo) (*repb.FileNode, error) {
	node := &repb.FileNode{IsExecutable: info.Mode()&0o111 != 0}
	written := ""
	if o.movable {
		if at, ok := f.layer.Written(name); ok {
			written = at
		}
	}
	if written == "" { // otherwise it is no input
		if input, ok := f.layer.Unchanged(name); ok && input.Kind == vfs.File {
			o.needs[input.Digest] = struct{}{}
			node.Digest = input.Digest.Proto()
			return node, nil
		}
	}
	if !o.movable {
		if d, again := o.taken[f.path(name)]; again {
			node.Digest = d.Proto()
			return node, nil
		}
	}
	if err := o.admit(info.Size()); err != nil {
		return nil, err
	}
	d, err := o.take(ctx, f, name, written)
	if err = o.stored(ctx, d, err); err != nil {
		return nil, err
	}
	if !o.movable {
		o.taken[f.path(name)] = d
	}
	node.Digest = d.Proto()
	return node, nil
}

// take stores the file name of the folder f as a blob in the worker's store. It moves the file if
// written, its path in the writable layer, is not empty. Otherwise it copies the file: processes
// with access keep the original.
func (o *Outputs) take(ctx context.Context, f *folder, name, written string) (digest.Digest, error) {
	if written != "" {
		d, err := o.opts.Store.Take(ctx, written, o.opts.Function)
		if !errors.Is(err, syscall.ENAMETOOLONG) {
			return d, err
		}
	}
	return o.copy(ctx, func() (*os.File, error) {
		if err := f.open(); err != nil {
			return nil, err
		}
		// This does not wait for a writer in case the file is now a pipe.
		return f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	})
}

// copy copies the file that open opens into the worker's store.
func (o *Outputs) copy(ctx context.Context, open func() (*os.File, error)) (digest.Digest, error) {
	f, err := open()
	if err != nil {
		return digest.Digest{}, err
	}
	defer f.Close()
	return o.opts.Store.TakeCopy(ctx, f, o.opts.Function)
}

// stored keeps a file that came into the store, if err is nil.
func (o *Outputs) stored(ctx context.Context, d digest.Digest, err error) error {
	if err != nil {
		return err
	}
	return o.keep(ctx, d)
}

// bytes stores a small blob that the worker made itself.
func (o *Outputs) bytes(ctx context.Context, d digest.Digest, b []byte) error {
	if err := o.opts.Store.PutBytes(ctx, d, b); err != nil {
		return err
	}
	return o.keep(ctx, d)
}

// keep pins a blob of the store until Release, and lists it for the upload.
func (o *Outputs) keep(ctx context.Context, d digest.Digest) error {
	if _, listed := o.blobs[d]; listed || d.IsEmptyBlob() {
		return nil
	}
	store := o.opts.Store
	unpin, ok := store.Pin(d)
	if !ok {
		return fmt.Errorf("blob %s was evicted before it could be uploaded: the worker's store is too small", d)
	}
	o.unpin = append(o.unpin, unpin)
	// If the store is the storage: the action made these bytes, and they need not be uploaded to be
	// its instance name's. An error recurs in the upload.
	_ = store.Of(o.opts.Instance).Gained(d)
	o.needs[d] = struct{}{}
	o.blobs[d] = casclient.Blob{Digest: d, Open: func() (io.ReadCloser, error) { return store.OpenBlob(ctx, d) }}
	return nil
}

// message stores a protobuf message.
func (o *Outputs) message(ctx context.Context, m proto.Message) (digest.Digest, error) {
	d, raw, err := digest.OfMessage(o.opts.Function, m)
	if err != nil {
		return d, err
	}
	return d, o.bytes(ctx, d, raw)
}

// Release lets the store evict the pinned blobs of keep. Callers that make Outputs must call it.
func (o *Outputs) Release() {
	for _, unpin := range o.unpin {
		unpin()
	}
}

// Upload uploads blobs of the result that storage lacks. It fetches unchanged inputs that the
// worker has not read: a storage that reports such a blob as missing may still have it, and
// verifies it when it is read. If nobody has an input any more, the error is a *cas.MissingError.
func (o *Outputs) Upload(ctx context.Context) error {
	ctx = casclient.Vouched(ctx)
	blobs := slices.Collect(maps.Values(o.blobs))
	for d := range o.Unread() {
		blobs = append(blobs, casclient.Blob{Digest: d, Open: func() (io.ReadCloser, error) { return o.openInput(ctx, d) }})
	}
	err := o.opts.Storage.Upload(ctx, blobs, nil)
	if refused(ctx, err) {
		if damage := o.verify(ctx); damage != nil {
			return fmt.Errorf("storage did not take outputs: %w", errors.Join(err, damage))
		}
		err = o.opts.Storage.Upload(ctx, blobs, nil)
	}
	if err != nil {
		return fmt.Errorf("upload outputs: %w", err)
	}
	return nil
}

// openInput opens an input that may have to be fetched. One that the store has no room for is for
// the client to bring.
func (o *Outputs) openInput(ctx context.Context, d digest.Digest) (io.ReadCloser, error) {
	file, err := o.opts.Inputs.OpenBlob(ctx, d)
	if errors.Is(err, cas.ErrNoSpace) {
		return nil, fmt.Errorf("%w: %w", &cas.MissingError{Digests: []digest.Digest{d}}, err)
	}
	if err != nil {
		return nil, err
	}
	return file, nil
}

// refused reports whether storage may have rejected an upload as wrong.
func refused(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	code := fault.Status(ctx, err).Code()
	return errors.Is(err, cas.ErrCorrupt) || code == codes.DataLoss || code == codes.InvalidArgument
}

// notPlain is the fault of an output that a result cannot hold.
func notPlain(info fs.FileInfo) error {
	return fault.Errorf(codes.InvalidArgument, "is a %s; only files, directories and symlinks can be Outputs",
		map[fs.FileMode]string{
			fs.ModeNamedPipe: "named pipe", fs.ModeSocket: "socket",
			fs.ModeDevice: "block device", fs.ModeDevice | fs.ModeCharDevice: "character device",
		}[info.Mode().Type()])
}

// Needs returns all blobs that the result refers to.
func (o *Outputs) Needs() iter.Seq[digest.Digest] { return maps.Keys(o.needs) }

// Unread returns the inputs among them that were not read.
func (o *Outputs) Unread() iter.Seq[digest.Digest] {
	return func(yield func(digest.Digest) bool) {
		for d := range o.needs {
			if _, made := o.blobs[d]; !made && !yield(d) {
				return
			}
		}
	}
}

// verify returns a *cas.DamagedError if outputs have changed since they were stored.
func (o *Outputs) verify(ctx context.Context) error {
	var wrong cas.DamagedError
	for d := range o.blobs {
		if damaged := (*cas.DamagedError)(nil); errors.As(o.opts.Store.Verifier().Verify(ctx, d), &damaged) {
			wrong.Digests = append(wrong.Digests, d)
		}
	}
	if len(wrong.Digests) == 0 {
		return nil
	}
	return &wrong
}
