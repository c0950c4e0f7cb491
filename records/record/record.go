package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/forerunner-build/forerunner/cas/digest"
)

var (
	// ErrNotFound means that there is no record under a key.
	ErrNotFound = errors.New("no such record")
	// ErrInvalid means that a key or a value breaks a rule of the store. A retry is useless.
	ErrInvalid = errors.New("invalid record")
	// ErrConflict means that a record differs from the old value in CompareAndSwap.
	ErrConflict = errors.New("record was changed meanwhile")
	// ErrDamaged means that a record differs from the bytes that were written. Hints never return
	// it.
	ErrDamaged = errors.New("record is damaged")
)

// A Key names a record.
type Key struct {
	// Bucket is the kind of the record, such as "profile": 1 to 64 bytes, chosen by the program,
	// never by a request.
	Bucket string
	// Instance is the instance name of REv2, at most 1024 bytes; it may be empty.
	Instance string
	// Digest identifies the subject of the record. Its digest function is part of the key. A
	// subject with a name uses the digest of the name.
	Digest digest.Digest
}

// String returns the parts of k for messages.
func (k Key) String() string {
	return fmt.Sprintf("%s %q %s %s", k.Bucket, k.Instance, k.Digest.Function(), k.Digest)
}

// Hints store records of up to 1 MiB that may be lost: profiles and statistics of actions. A record
// may be evicted, and a damaged one counts as missing. An unreadable store of hints is replaced by
// an empty one. The methods may be called concurrently. They may fail for buckets that a store does
// not support.
type Hints interface {
	// Get returns the value under k, or an error that wraps ErrNotFound. The value is not nil, and
	// the caller may change it.
	Get(ctx context.Context, k Key) ([]byte, error)
	// Put sets the value under k and keeps no reference to it. The error wraps ErrInvalid if the
	// key or the value is invalid.
	Put(ctx context.Context, k Key, value []byte) error
}

// Durable stores records of up to 1 MiB that must not be lost: quotas, drains, leases. It never
// evicts a record. A damaged record is an error that wraps ErrDamaged and names the remedy. The
// methods may be called concurrently. When a method that writes has returned nil, the record is as
// durable as the store can make it.
type Durable interface {
	// Get returns the value under k, or an error that wraps ErrNotFound. The value is not nil, and
	// the caller may change it.
	Get(ctx context.Context, k Key) ([]byte, error)
	// Put sets the value under k and keeps no reference to it. The error wraps ErrInvalid if the
	// key or the value is invalid.
	Put(ctx context.Context, k Key, value []byte) error
	// CompareAndSwap sets the value under k to value if it is now old, and otherwise returns an
	// error that wraps ErrConflict. A nil old means that there is no record; an empty old that is
	// not nil means an empty value.
	CompareAndSwap(ctx context.Context, k Key, old, value []byte) error
}
