package fuse

import (
	"context"
	"os"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// Source is where an input root comes from, see vfs.Source.
type Source interface {
	Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error)
	// LocalDirectory is asked at every lookup and listing: the layer keeps no directories of its own.
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
	OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error)
}

// ArrivingSource is a Source that need not have all of a file before it is read.
type ArrivingSource interface {
	// OpenArriving returns a file as OpenBlob does, or what will be one; vfs
	// closes either. It must not wait for all of a large blob.
	OpenArriving(ctx context.Context, d digest.Digest) (*os.File, Arrival, error)
}

// Arrival is a blob on its way. Its methods may be called concurrently, but for
// Close, which is the last.
type Arrival interface {
	// ReadAt reads as io.ReaderAt does, and waits until the bytes are there or ctx
	// ends. Bytes that are there it returns even if ctx has ended.
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
	// Wait waits until the blob is whole and verified. If it never will be, the
	// error says why, and every later ReadAt fails.
	Wait(ctx context.Context) error
	Close()
}
