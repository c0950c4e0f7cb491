package cas

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// A Fetcher gets blobs from elsewhere; Client is one.
//
// Fetch calls sink once for each blob it finds, in any order and possibly concurrently, with a
// reader of the blob's bytes; sink verifies them, and may return without reading when the blob has
// come another way meanwhile. An error of sink concerns that blob. After all others were delivered
// Fetch returns a *MissingError for missing blobs, or another error if some failed. It does not
// return during a call of sink.
type Fetcher interface {
	Fetch(ctx context.Context, ds []digest.Digest, sink func(d digest.Digest, r io.Reader) error) error
}

// A PatientFetcher is a Fetcher that can let some calls yield to others.
//
// Behind returns a Fetcher of the same blobs whose calls never take so much of the shared resources
// that those of the PatientFetcher must wait for them. It is a RangeFetcher if the PatientFetcher
// is one.
type PatientFetcher interface {
	Fetcher
	Behind() Fetcher
}

// A Pauser is a reader of a blob that shares a link with others. Pause gives up its share: it ends
// the call that brings the bytes, and the next Read makes another one for those that have not come.
type Pauser interface {
	io.Reader
	Pause()
}

// A RangeFetcher is a Fetcher that can begin inside a blob. A ReadThrough over one lets large blobs
// be read while they arrive.
//
// FetchRange writes the bytes of d in part to w, in their order and from one goroutine. Unlike
// those of Fetch they are not verified, except that too few bytes are ErrCorrupt, and too many if
// part ends where d does. An error of w ends it and is wrapped by its own. For a missing blob the
// error is a *MissingError. A call of Behind first writes an empty slice,
// when it no longer waits for others: its bytes come as soon as those of any other call.
type RangeFetcher interface {
	Fetcher
	FetchRange(ctx context.Context, d digest.Digest, part span.Span, w io.Writer) error
}

// A TreeFetcher is a Fetcher that can get directories without their digests.
//
// FetchTree calls came for Directories of the tree with that root, with their digests and messages,
// until came returns false. It may omit some, and bring others. If storage has no such call, the
// error is codes.Unimplemented.
type TreeFetcher interface {
	Fetcher
	FetchTree(ctx context.Context, root digest.Digest, came func(d digest.Digest, message []byte) bool) error
}

// A DirectFetcher is a Fetcher that asks peers before it asks storage. Direct returns a Fetcher
// that asks only storage, for blobs that peers do not keep.
type DirectFetcher interface {
	Fetcher
	Direct() Fetcher
}

// An Incoming is a blob on its way into a store. Its bytes may come in any order and from several
// goroutines, and take space in the store as they come. Either Keep or Drop ends it; then comes
// Close, after the last read.
type Incoming interface {
	// WriteAt writes bytes that were not written before. Bytes that do not fit are ErrNoSpace.
	io.WriterAt
	// ReadAt reads written bytes, before and after Keep, until Close.
	io.ReaderAt
	// Keep makes a blob of the written bytes, all of which the caller has hashed, and leaves it
	// retained once.
	Keep(ctx context.Context) error
	// Drop discards the blob and its bytes.
	Drop()
	Close()
}

// A Readable is a source of blobs. For a missing blob the error is a *MissingError.
type Readable interface {
	// FindMissing returns the missing ones of ds, in their order.
	FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error)
	OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error)
	// ReadBlob hashes the bytes that it returns.
	ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error)
	// Reading is called before a reader reads all of d from a file that OpenBlob opened. If the
	// bytes are right, the reader calls sound before it closes the file; if they are wrong, it asks
	// for a Verdict.
	Reading(d digest.Digest, file *os.File) (sound func(), err error)
	// Verdict checks d after a reader got wrong bytes of it. A damaged blob is missing from then
	// on, and the error says so.
	Verdict(ctx context.Context, d digest.Digest) error
}

// Content is the blobs of one instance name.
type Content interface {
	Readable
	// Contains reports whether d exists.
	Contains(d digest.Digest) bool
	// ContainsSound reports whether d exists and is verified.
	ContainsSound(ctx context.Context, d digest.Digest) (bool, error)
	// FindUnsound is FindMissing that also checks the present blobs: it hashes those whose files
	// were changed and, with stale, those that are not verified.
	FindUnsound(ctx context.Context, ds []digest.Digest, stale bool) ([]digest.Digest, error)
	// PutBytes stores d, whose bytes are b.
	PutBytes(ctx context.Context, d digest.Digest, b []byte) error
	// Arriving is called when a stream has delivered all of d, before d appears in the store;
	// Gained is called when it has appeared.
	Arriving(ctx context.Context, d digest.Digest) error
	Gained(d digest.Digest) error
}

// A Writer takes the bytes of a blob in order. They take space in the store as they come; bytes
// that do not fit are ErrNoSpace. Drop, or a Keep that returns nil, ends it.
type Writer interface {
	io.Writer
	// Keep makes a blob of the written bytes, all of which the caller has hashed, and leaves it
	// retained once.
	Keep(ctx context.Context) error
	// Drop discards the blob and its bytes.
	Drop()
	// GiveBack releases the space ahead of Drop.
	GiveBack()
}

// The limits of one call, for callers that request many blobs.
const (
	// BatchBytes leaves room in gRPC's default limit of 4 MiB for the digests and statuses of some
	// 2,500 blobs.
	BatchBytes = 4<<20 - 256<<10
	// MaxBatchBlobs and EntryOverhead keep a batch of tiny blobs within the
	// message limit that goes with the batch limit.
	MaxBatchBlobs = 2000
	EntryOverhead = 100
	// StreamAbove is the size from which a blob has a stream of its own.
	StreamAbove = 1 << 20
)

// maxReported bounds the blobs that the text of a FetchError names.
const maxReported = 10

// A FetchError has the error of each blob of a Fetch that failed. Other blobs that were not
// delivered are missing.
type FetchError struct {
	Blobs map[digest.Digest]error // not empty
}

// Error has a line for each of the first blobs.
func (e *FetchError) Error() string {
	lines := make([]string, 0, maxReported+1)
	for d, err := range e.Blobs {
		if len(lines) == maxReported {
			lines = append(lines, fmt.Sprintf("and %d other blobs", len(e.Blobs)-maxReported))
			break
		}
		lines = append(lines, fmt.Sprintf("fetch blob %s: %v", d, err))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors of all blobs.
func (e *FetchError) Unwrap() []error { return slices.Collect(maps.Values(e.Blobs)) }
