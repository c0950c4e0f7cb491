package fetch

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A Store is what a Group fills and reads; disk.Store is one. Its methods may be called concurrently.
type Store interface {
	Reader
	Holder
	Receiver
}

// A Reader reads what is there. Of a blob that is not the error is a *cas.MissingError.
type Reader interface {
	OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error)
	// ReadBlob hashes what it returns.
	ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error)
	// ReadLocal is ReadBlob that waits for nothing but the disk; ok is false for whatever is wrong.
	ReadLocal(d digest.Digest) (b []byte, ok bool)
}

// A Holder tells what is there, and keeps it there.
type Holder interface {
	// FindMissing counts as a use of those that are there. The empty blob is.
	FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error)
	// Has does not count as a use.
	Has(d digest.Digest) bool
	// Retain keeps d from being evicted until Release is called as often as it returned true.
	Retain(d digest.Digest) bool
	Release(d digest.Digest)
}

// A Receiver takes blobs in, and verifies them. What does not fit is cas.ErrNoSpace, other bytes than
// the digest says are cas.ErrCorrupt.
type Receiver interface {
	Put(ctx context.Context, d digest.Digest, r io.Reader) error
	// PutPinned is Put that leaves d retained once.
	PutPinned(ctx context.Context, d digest.Digest, r io.Reader) error
	// Receive takes a blob in whose bytes come in any order.
	Receive(d digest.Digest) cas.Incoming
}

// Options are what may be chosen about a Group. The zero value works.
type Options struct {
	// DirectoryCacheBytes bounds the memory of the directories that ReadThroughs
	// keep at hand for all their users together. What is gone from it is read
	// again. 0 is 256 MiB.
	DirectoryCacheBytes int64
	// ArriveAbove is the size, in bytes, from which on a ReadThrough lets a blob be
	// read while it arrives, if its upstream can. 0 is 8 MiB.
	ArriveAbove int64
	// Metrics is where what was fetched is registered. Nil: nowhere.
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

// A Group is what all views of one Store share: the fetches that are under way, and the directories
// that are at hand. There is one for a Store. Its methods may be called concurrently.
type Group struct{ *shared }

// shared is what is in a Group.
type shared struct {
	store       Store
	directories *memory[*tree.Directory]
	messages    *memory[message]
	arriveAbove int64
	hints       chan struct{} // has a place for each stream that brings what is foreseen
	fetched     fetched
	flights
}

// NewGroup returns the Group of a Store, which stays the caller's to close, after the Group.
func NewGroup(s Store, o Options) (*Group, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	x := &shared{
		store: s, arriveAbove: o.ArriveAbove, hints: make(chan struct{}, maxHints),
		directories: newMemory[*tree.Directory](o.DirectoryCacheBytes), messages: newMemory[message](messageBytes),
	}
	x.inFlight = make(map[digest.Digest]*flight)
	if o.Metrics != nil {
		if err := o.Metrics.Register(newMetrics(x)); err != nil {
			return nil, err
		}
	}
	return &Group{x}, nil
}
