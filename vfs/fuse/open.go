package fuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// opened is the Source's answer for a file: one of the two.
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
func (l *Layer) open(a access, n *Node) (*blob, fuse.Status) {
	b := l.blobs.use(n.Digest, n.id)
	if b == nil {
		o, err, ok := l.obtain(a, n.Digest, l.openBlob)
		if !ok {
			return nil, fuse.EIO // the caller has ended
		}
		if err != nil {
			l.fail(n, err)
			return nil, fuse.EIO
		}
		b = l.add(n, o)
	}
	if l.blobs.failure(b) != nil {
		l.blobs.leave(b)
		return nil, fuse.EIO
	}
	return b, fuse.OK
}

// add makes a blob of the Source's answer for n.
func (l *Layer) add(n *Node, o opened) *blob {
	if o.data == nil {
		return l.blobs.add(n.Digest, n.id, o.file, l.register)
	}
	b, fresh := l.blobs.addArriving(n.Digest, n.id, o.data)
	if fresh != nil {
		l.loads.Go(func() { l.follow(fresh, n) })
	}
	return b
}

// obtain opens a local blob, and otherwise waits for open, as await does.
func (l *Layer) obtain(
	a access, d digest.Digest, open func(context.Context, digest.Digest) (opened, error),
) (o opened, err error, ok bool) {
	l.hooks.Blob(d)
	if o, ok := l.openLocal(d); ok {
		return o, nil, true
	}
	return await(a, func(ctx context.Context) (opened, error) { return open(ctx, d) }, opened.close)
}

// openLocal is openBlob for a blob that is on the local disk. False: it may have to be fetched, or
// openBlob returns the error.
func (l *Layer) openLocal(d digest.Digest) (o opened, ok bool) {
	source, ok := l.source.(LocalSource)
	if !ok {
		return o, false
	}
	if o.file, ok = source.OpenLocal(l.ctx, d); !ok {
		return o, false
	}
	return o, o.check(d) == nil
}

// openBlob opens the blob.
func (l *Layer) openBlob(ctx context.Context, d digest.Digest) (o opened, err error) {
	if source, ok := l.source.(ArrivingSource); ok {
		o.file, o.data, err = source.OpenArriving(ctx, d)
	} else {
		o.file, err = l.source.OpenBlob(ctx, d)
	}
	if err != nil || o.data != nil {
		return o, err
	}
	return o, o.check(d)
}

// check closes a file that does not have the size of d: the kernel knows the expected size, and a
// passthrough read would not respect it.
func (o opened) check(d digest.Digest) error {
	st, err := o.file.Stat()
	if err == nil && st.Size() != d.SizeBytes() {
		err = fmt.Errorf("blob %s has %d bytes", d, st.Size())
	}
	if err != nil {
		o.close()
	}
	return err
}

// forCopyUp reports whether overlayfs opens a file to copy it up. Mostly it needs only the
// attributes, for an input that is moved or gets other attributes, and then reads nothing. It opens
// files for programs with O_NOATIME.
func forCopyUp(in *fuse.OpenIn) bool {
	return in.Flags&(unix.O_ACCMODE|unix.O_NOATIME) == unix.O_RDONLY
}

// readOnce reads from a file that was opened without its content. Overlayfs copies
// little this way, so the blob is opened each time.
func (l *Layer) readOnce(a access, id uint64, buf []byte, off int64) (fuse.ReadResult, fuse.Status) {
	n := l.nodes.get(id)
	if n == nil || n.Kind != tree.File {
		return nil, fuse.ENOENT
	}
	o, err, ok := l.obtain(a, n.Digest, func(ctx context.Context, d digest.Digest) (opened, error) {
		file, err := l.source.OpenBlob(ctx, d)
		return opened{file: file}, err
	})
	if !ok {
		return nil, fuse.EIO // the caller has ended
	}
	if err != nil {
		l.fail(n, err)
		return nil, fuse.EIO
	}
	defer o.close()
	if n.area == treeArea {
		l.look(n, tree.LookInside)
		l.hooks.Read(n)
	}
	size, err := o.file.ReadAt(buf, off)
	if err != nil && !errors.Is(err, io.EOF) {
		l.fail(n, err)
		return nil, fuse.EIO
	}
	return fuse.ReadResultData(buf[:size]), fuse.OK
}

// register lets the kernel read file directly. If the kernel refuses that, although the probe
// succeeded, this process serves the file.
func (l *Layer) register(file *os.File) (int32, bool) {
	if !l.passthrough {
		return 0, false
	}
	id, err := l.mount.conn.Device().Register(file)
	if err != nil {
		l.driver.warnRegister.Do(func() {
			l.driver.log.Warn("kernel refuses passthrough for a blob; it is read through this process",
				zap.String("blob", file.Name()), zap.NamedError("missing", err),
				zap.String("costs", CostOfCached), zap.String("remedy", PassthroughAdvice))
		})
	}
	return id, err == nil
}
