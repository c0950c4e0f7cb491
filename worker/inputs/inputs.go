package inputs

import (
	"context"
	"os"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/vfs"
)

// Source lets an input root read large files while they arrive in the store, and verifies blobs
// when the root finds them damaged.
type Source struct {
	*fetch.ReadThrough
	// Verifier verifies damaged blobs.
	Verifier *disk.Verifier
	// Opened is called for each file that the root opens, with the presence of its blob.
	Opened func(d digest.Digest, was cas.Presence)
	// ReadPart is called for each read of a file that was arriving when it was opened; may be nil.
	// The kernel reads other files without this process.
	ReadPart func(d digest.Digest, off, n int64)
}

var (
	_ vfs.Source         = Source{}
	_ vfs.LocalSource    = Source{}
	_ vfs.ArrivingSource = Source{}
	_ vfs.Verifier       = Source{}
)

// Verify implements vfs.Verifier.
func (s Source) Verify(ctx context.Context, d digest.Digest) error { return s.Verifier.Verify(ctx, d) }

// OpenLocal implements vfs.LocalSource.
func (s Source) OpenLocal(ctx context.Context, d digest.Digest) (*os.File, bool) {
	file, ok := s.ReadThrough.OpenLocal(ctx, d)
	if ok {
		s.Opened(d, cas.Local)
	}
	return file, ok
}

// OpenArriving implements vfs.ArrivingSource.
func (s Source) OpenArriving(ctx context.Context, d digest.Digest) (*os.File, vfs.Arrival, error) {
	file, arrival, was, err := s.ReadThrough.OpenArriving(ctx, d)
	s.Opened(d, was)
	if arrival == nil { // and not an interface that holds nil
		return file, nil, err
	}
	if s.ReadPart == nil {
		return file, arrival, err
	}
	return file, watched{arrival, d, s.ReadPart}, err
}

// watched is an arrival whose reads are recorded.
type watched struct {
	*fetch.Arrival
	digest   digest.Digest
	readPart func(d digest.Digest, off, n int64)
}

// ReadAt implements vfs.Arrival.
func (w watched) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	w.readPart(w.digest, off, int64(len(p)))
	return w.Arrival.ReadAt(ctx, p, off)
}

// OpenBlob implements vfs.Source.
func (s Source) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	file, was, err := s.OpenWhole(ctx, d)
	s.Opened(d, was)
	return file, err
}
