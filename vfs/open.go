package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// opened is what a Source gave for a file: one of the two.
type opened struct {
	file *os.File
	data Arrival
}

func (o opened) close() {
	if o.file != nil {
		_ = o.file.Close()
	}
	if o.data != nil {
		o.data.Close()
	}
}

// open returns a file with the bytes of n; it must be released.
func (r *Root) open(a access, n *node) (*blob, fuse.Status) {
	b := r.blobs.use(n.Digest, n.id)
	if b == nil {
		o, err, ok := await(a, func(ctx context.Context) (opened, error) {
			return r.openBlob(ctx, n.Digest)
		}, opened.close)
		if !ok {
			return nil, fuse.EIO // nobody is left to see it
		}
		if err != nil {
			r.fail(n, err)
			return nil, fuse.EIO
		}
		b = r.add(n, o)
	}
	if r.blobs.failure(b) != nil {
		r.blobs.leave(b)
		return nil, fuse.EIO
	}
	return b, fuse.OK
}

// add makes a blob of what the Source gave for n.
func (r *Root) add(n *node, o opened) *blob {
	if o.data == nil {
		return r.blobs.add(n.Digest, n.id, o.file, r.register)
	}
	b, fresh := r.blobs.addArriving(n.Digest, n.id, o.data)
	if fresh != nil {
		r.loads.Go(func() { r.follow(fresh, n) })
	}
	return b
}

// openBlob opens the blob and checks its size, which the kernel was told
// before and which a passthrough read would not keep to.
func (r *Root) openBlob(ctx context.Context, d digest.Digest) (o opened, err error) {
	r.tellBlob(d)
	if source, ok := r.spec.Source.(ArrivingSource); ok {
		o.file, o.data, err = source.OpenArriving(ctx, d)
	} else {
		o.file, err = r.spec.Source.OpenBlob(ctx, d)
	}
	if err != nil || o.data != nil {
		return o, err
	}
	st, err := o.file.Stat()
	if err == nil && st.Size() != d.SizeBytes() {
		err = fmt.Errorf("blob %s has %d bytes", d, st.Size())
	}
	if err != nil {
		o.close()
		return opened{}, err
	}
	return o, nil
}

// forCopyUp reports whether overlayfs opens a file to copy it up. Mostly it wants
// the attributes alone, for an input that is moved or gets other attributes, and
// then reads nothing. What programs open it opens with O_NOATIME.
func forCopyUp(in *fuse.OpenIn) bool {
	return in.Flags&(unix.O_ACCMODE|unix.O_NOATIME) == unix.O_RDONLY
}

// readOnce reads from a file that was opened without its content. Overlayfs copies
// little this way, so the blob is opened each time.
func (r *Root) readOnce(a access, id uint64, buf []byte, off int64) (fuse.ReadResult, fuse.Status) {
	n := r.node(id)
	if n == nil || n.Kind != File {
		return nil, fuse.ENOENT
	}
	r.tellBlob(n.Digest)
	o, err, ok := await(a, func(ctx context.Context) (*os.File, error) {
		return r.spec.Source.OpenBlob(ctx, n.Digest)
	}, func(f *os.File) { _ = f.Close() })
	if !ok {
		return nil, fuse.EIO // nobody is left to see it
	}
	if err != nil {
		r.fail(n, err)
		return nil, fuse.EIO
	}
	defer func() { _ = o.Close() }()
	if n.area == treeArea {
		r.look(n, tree.LookInside)
		r.markRead(n)
	}
	size, err := o.ReadAt(buf, off)
	if err != nil && !errors.Is(err, io.EOF) {
		r.fail(n, err)
		return nil, fuse.EIO
	}
	return fuse.ReadResultData(buf[:size]), fuse.OK
}
