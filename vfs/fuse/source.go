package fuse

import (
	"context"
	"os"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// Source provides an input root; see vfs.Source.
type Source interface {
	Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error)
	// LocalDirectory is called at every lookup and listing: the layer keeps no directories of its
	// own.
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
	OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error)
}

// LocalSource is a Source that tells at once whether it has a blob.
type LocalSource interface {
	// OpenLocal is OpenBlob if the blob is on the local disk, for which alone it waits. ok is false
	// for every error.
	OpenLocal(ctx context.Context, d digest.Digest) (file *os.File, ok bool)
}

// ArrivingSource is a Source that can return a file before all of it has arrived.
type ArrivingSource interface {
	// OpenArriving returns a file as OpenBlob does, or one that is arriving; vfs closes either. It
	// must not wait for all of a large blob.
	OpenArriving(ctx context.Context, d digest.Digest) (*os.File, Arrival, error)
}

// Arrival is an arriving blob. Its methods may be called concurrently, except Close, which is
// called last.
type Arrival interface {
	// ReadAt reads as io.ReaderAt does, and waits until the bytes have arrived or ctx ends. It
	// returns bytes that have arrived even if ctx has ended.
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
	// Wait waits until the blob is complete and verified. If that fails, it returns the error, and
	// every later ReadAt fails.
	Wait(ctx context.Context) error
	Close()
}
