package fetch

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A Store is filled and read by a Group; disk.Store is one. Its methods may be called concurrently.
type Store interface {
	Reader
	Holder
	Receiver
}

// A Reader reads stored blobs. For a missing blob the error is a *cas.MissingError.
type Reader interface {
	OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error)
	// ReadBlob hashes the bytes that it returns.
	ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error)
	// ReadLocal is ReadBlob that waits only for the disk; ok is false for every error.
	ReadLocal(d digest.Digest) (b []byte, ok bool)
}

// A Holder lists stored blobs, and pins them.
type Holder interface {
	// FindMissing returns the missing ones of ds, and counts the others as used. The empty blob is
	// present.
	FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error)
	// Has reports whether d exists, without counting that as a use.
	Has(d digest.Digest) bool
	// Retain prevents the eviction of d until Release has been called as often as Retain returned
	// true.
	Retain(d digest.Digest) bool
	Release(d digest.Digest)
}

// A Receiver takes and verifies blobs. A blob that does not fit is cas.ErrNoSpace, bytes that do
// not match the digest are cas.ErrCorrupt.
type Receiver interface {
	Put(ctx context.Context, d digest.Digest, r io.Reader) error
	// PutPinned is Put, and retains d once.
	PutPinned(ctx context.Context, d digest.Digest, r io.Reader) error
	// Receive begins to receive a blob whose bytes come in any order.
	Receive(d digest.Digest) cas.Incoming
}

// Options are the options of a Group. The zero value works.
type Options struct {
	// DirectoryCacheBytes limits the memory for directories that all users of the Group share.
	// Directories that do not fit are read again. 0 is 256 MiB.
	DirectoryCacheBytes int64
	// ArriveAbove is the size in bytes above which a blob can be read while it arrives, if the
	// upstream supports it. 0 is 8 MiB.
	ArriveAbove int64
	// Metrics is the registry for the counters of fetches. Nil: they are not registered.
	Metrics prometheus.Registerer
}

func (o *Options) validate() error {
	if o.DirectoryCacheBytes < 0 || o.ArriveAbove < 0 {
		return fmt.Errorf("a store cannot have %d bytes for directories, or let blobs arrive above %d",
			o.DirectoryCacheBytes, o.ArriveAbove)
	}
	if o.ArriveAbove == 0 {
		o.ArriveAbove = 8 << 20
	}
	if o.DirectoryCacheBytes == 0 {
		o.DirectoryCacheBytes = 256 << 20
	}
	return nil
}

// messageBytes bounds the memory of messages that are not in the store.
const messageBytes = 4 << 20

// A Group is shared by all views of one Store: it has the fetches in progress, and the cached
// directories. There is one for a Store. Its methods may be called concurrently.
type Group struct{ *shared }

// shared is the state of a Group.
type shared struct {
	store       Store
	directories *bounded.Memory[digest.Digest, parsed]
	messages    *bounded.Memory[digest.Digest, message]
	arriveAbove int64
	// directoryBytes is Options.DirectoryCacheBytes.
	directoryBytes int64
	hints          chan struct{} // has a place for each stream that fetches predicted parts
	fetched        fetched
	trees          trees
	flights
}

// NewGroup returns the Group of a Store. The caller closes the Store after the Group.
func NewGroup(s Store, o Options) (*Group, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	x := &shared{
		store: s, arriveAbove: o.ArriveAbove, directoryBytes: o.DirectoryCacheBytes, hints: make(chan struct{}, maxHints),
		directories: bounded.NewMemory[digest.Digest, parsed](o.DirectoryCacheBytes), messages: bounded.NewMemory[digest.Digest, message](messageBytes),
	}
	x.trees.awaited = map[digest.Digest]*directory{}
	x.inFlight = make(map[digest.Digest]*flight)
	if o.Metrics != nil {
		if err := o.Metrics.Register(newMetrics(x)); err != nil {
			return nil, err
		}
	}
	return &Group{x}, nil
}
