package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/fault"
)

// maxInlineBytes is up to which size stdout and stderr travel in the result.
const maxInlineBytes = 4 << 10

// outputs gathers what an action made, first into the worker's store, then
// into storage. Until release is called nothing of it goes from the store.
type outputs struct {
	a      *action
	result *repb.ActionResult
	blobs  map[digest.Digest]casclient.Blob
	// needs has all blobs that the result needs: those, and those of unchanged inputs.
	needs map[digest.Digest]struct{}
	unpin []func()
	// movable: what is stored may be moved into the store, for neither can anybody write to it later,
	// nor is it part of another output. taken has what is stored already, if it may be.
	movable bool
	taken   map[string]digest.Digest
	// What the command made of it, for the OutputPolicy.
	madeFiles int
	madeBytes int64
	names     int // seen in directories
}

func newOutputs(a *action) *outputs {
	return &outputs{
		a: a, result: &repb.ActionResult{}, blobs: map[digest.Digest]casclient.Blob{},
		needs: map[digest.Digest]struct{}{}, taken: map[string]digest.Digest{},
	}
}

// streams stores stdout and stderr.
func (o *outputs) streams(ctx context.Context, result runner.Result) error {
	var err error
	if o.result.StdoutRaw, o.result.StdoutDigest, err = o.stream(ctx, o.a.work.stdout(), result.StdoutTruncated); err != nil {
		return fmt.Errorf("store stdout: %w", err)
	}
	if o.result.StderrRaw, o.result.StderrDigest, err = o.stream(ctx, o.a.work.stderr(), result.StderrTruncated); err != nil {
		return fmt.Errorf("store stderr: %w", err)
	}
	return nil
}

// stream returns a short output whole, and the digest of a long one.
func (o *outputs) stream(ctx context.Context, name string, truncated bool) ([]byte, *repb.Digest, error) {
	if truncated {
		if err := markTruncated(name); err != nil {
			return nil, nil, err
		}
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
	if o.a.vacated {
		d, err = o.a.p.w.opts.Store.Take(ctx, name, o.a.fn)
	} else {
		d, err = o.copy(ctx, func() (*os.File, error) { return os.Open(name) })
	}
	return nil, d.Proto(), o.stored(ctx, d, err)
}

// markTruncated says at the end of an output that the rest is not there.
func markTruncated(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n[output was longer than the worker keeps; the rest was dropped]\n")
	return errors.Join(err, f.Close())
}

// A foundOutput is what the root has at an output's path.
type foundOutput struct {
	output
	info fs.FileInfo
}

// collect finds every output in the root and stores it. One that is not there is left out, as
// REv2 wants. One output may be part of another. What was found beside a fault is stored as well.
func (o *outputs) collect(ctx context.Context, root *os.Root) error {
	found, fault := o.find(root)
	o.movable = o.a.vacated && !entangled(o.a.root.Path(), found)
	for _, at := range found {
		if err := o.add(ctx, root, at); err != nil {
			return fmt.Errorf("output %.200q: %w", at.path, err)
		}
	}
	return fault
}

// find finds every output in the root, and reports symlinks, whose targets may be gone later. What it found
// beside a fault comes before it.
func (o *outputs) find(root *os.Root) (found []foundOutput, err error) {
	for _, want := range o.a.command.outputs {
		info, err := root.Lstat(want.full)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			return found, o.a.command.pathFault("output", want.path, err)
		case info.Mode().Type() != fs.ModeSymlink:
			found = append(found, foundOutput{want, info})
			continue
		}
		target, err := readlink(root, want.full)
		if err != nil {
			return found, fmt.Errorf("output %.200q: %w", want.path, err)
		}
		o.addSymlink(root, want, target)
	}
	return found, nil
}

func (o *outputs) add(ctx context.Context, root *os.Root, at foundOutput) error {
	switch {
	case at.info.Mode().IsRegular():
		if at.kind == directoryOutput {
			return fault.Errorf(codes.InvalidArgument, "is a file, a directory was asked for")
		}
		node, err := o.fileNode(ctx, root, at.full, at.info)
		if err != nil {
			return err
		}
		o.result.OutputFiles = append(o.result.OutputFiles, &repb.OutputFile{
			Path: at.path, Digest: node.GetDigest(), IsExecutable: node.GetIsExecutable(),
		})
	case at.info.IsDir():
		if at.kind == fileOutput {
			return fault.Errorf(codes.InvalidArgument, "is a directory, a file was asked for")
		}
		return o.addDirectory(ctx, root, at.output)
	default:
		return notPlain(at.info)
	}
	return nil
}

// addSymlink reports a symlink as one, in the field that the client reads.
func (o *outputs) addSymlink(root *os.Root, want output, target string) {
	link := &repb.OutputSymlink{Path: want.path, Target: target}
	if want.kind == anyOutput {
		o.result.OutputSymlinks = append(o.result.OutputSymlinks, link)
		return
	}
	// What the link leads to is looked at inside the root only; a link that
	// leads out or nowhere goes by what the client asked for.
	info, err := root.Stat(want.full)
	if (err == nil && info.IsDir()) || (err != nil && want.kind == directoryOutput) {
		//lint:ignore SA1019 the field that clients of API 2.0 read
		o.result.OutputDirectorySymlinks = append(o.result.OutputDirectorySymlinks, link)
		return
	}
	//lint:ignore SA1019 the field that clients of API 2.0 read
	o.result.OutputFileSymlinks = append(o.result.OutputFileSymlinks, link)
}

// fileNode stores one file. An unchanged input keeps its digest unread.
func (o *outputs) fileNode(ctx context.Context, root *os.Root, full string, info fs.FileInfo) (*repb.FileNode, error) {
	node := &repb.FileNode{IsExecutable: info.Mode()&0o111 != 0}
	if input, ok := o.a.root.Unchanged(full); ok && input.Kind == vfs.File {
		o.needs[input.Digest] = struct{}{}
		node.Digest = input.Digest.Proto()
		return node, nil
	}
	if d, again := o.taken[full]; again {
		node.Digest = d.Proto()
		return node, nil
	}
	if err := o.admit(info.Size()); err != nil {
		return nil, err
	}
	d, err := o.take(ctx, root, full)
	if err = o.stored(ctx, d, err); err != nil {
		return nil, err
	}
	if !o.movable {
		o.taken[full] = d
	}
	node.Digest = d.Proto()
	return node, nil
}

// take makes the file at full a blob of the worker's store. If the action is not vacated it is
// copied, which leaves those who still have a way to it with the original.
func (o *outputs) take(ctx context.Context, root *os.Root, full string) (digest.Digest, error) {
	if o.movable {
		if written, ok := o.a.root.Written(full); ok {
			d, err := o.a.p.w.opts.Store.Take(ctx, written, o.a.fn)
			if !errors.Is(err, syscall.ENAMETOOLONG) {
				return d, err
			}
		}
	}
	// Not to wait for a writer should somebody have put a pipe there.
	return o.copy(ctx, func() (*os.File, error) {
		return root.OpenFile(full, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	})
}

// copy copies the file that open opens into the worker's store.
func (o *outputs) copy(ctx context.Context, open func() (*os.File, error)) (digest.Digest, error) {
	f, err := open()
	if err != nil {
		return digest.Digest{}, err
	}
	defer f.Close()
	return o.a.p.w.opts.Store.TakeCopy(ctx, f, o.a.fn)
}

// stored keeps a file that came into the store, if err is nil.
func (o *outputs) stored(ctx context.Context, d digest.Digest, err error) error {
	if err != nil {
		return err
	}
	return o.keep(ctx, d)
}

// bytes stores a small blob that the worker made itself.
func (o *outputs) bytes(ctx context.Context, d digest.Digest, b []byte) error {
	if err := o.a.p.w.opts.Store.PutBytes(ctx, d, b); err != nil {
		return err
	}
	return o.keep(ctx, d)
}

// keep pins a blob of the store until release, and lists it for the upload.
func (o *outputs) keep(ctx context.Context, d digest.Digest) error {
	if _, listed := o.blobs[d]; listed || d.IsEmptyBlob() {
		return nil
	}
	store := o.a.p.w.opts.Store
	unpin, ok := store.Pin(d)
	if !ok {
		return fmt.Errorf("blob %s was evicted before it could be uploaded: the worker's store is too small", d)
	}
	o.unpin = append(o.unpin, unpin)
	o.needs[d] = struct{}{}
	o.blobs[d] = casclient.Blob{Digest: d, Open: func() (io.ReadCloser, error) { return store.OpenBlob(ctx, d) }}
	return nil
}

// message stores a protobuf message.
func (o *outputs) message(ctx context.Context, m proto.Message) (digest.Digest, error) {
	d, raw, err := digest.OfMessage(o.a.fn, m)
	if err != nil {
		return d, err
	}
	return d, o.bytes(ctx, d, raw)
}

// release lets the store evict what keep has pinned. Whoever makes outputs calls it.
func (o *outputs) release() {
	for _, unpin := range o.unpin {
		unpin()
	}
}

// upload sends what storage lacks.
func (o *outputs) upload(ctx context.Context) error {
	blobs := make([]casclient.Blob, 0, len(o.blobs))
	for _, b := range o.blobs {
		blobs = append(blobs, b)
	}
	if err := o.a.storage.Upload(ctx, blobs, nil); err != nil {
		return fmt.Errorf("upload outputs: %w", err)
	}
	return nil
}

// notPlain is the fault of an output that a result cannot hold.
func notPlain(info fs.FileInfo) error {
	return fault.Errorf(codes.InvalidArgument, "is a %s; only files, directories and symlinks can be outputs",
		map[fs.FileMode]string{
			fs.ModeNamedPipe: "named pipe", fs.ModeSocket: "socket",
			fs.ModeDevice: "block device", fs.ModeDevice | fs.ModeCharDevice: "character device",
		}[info.Mode().Type()])
}
