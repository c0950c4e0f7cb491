package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/forerunner-build/forerunner/cas/digest"
)

var (
	// ErrNotFound: there is no record under a key.
	ErrNotFound = errors.New("no such record")
	// ErrInvalid: a key or a value breaks a rule of the store; a retry is useless.
	ErrInvalid = errors.New("invalid record")
	// ErrConflict: a record differs from the old value of CompareAndSwap.
	ErrConflict = errors.New("record was changed meanwhile")
	// ErrDamaged: a record differs from the bytes that were written. Hints never return it.
	ErrDamaged = errors.New("record is damaged")
)

// A Key names a record.
type Key struct {
	// Bucket is the kind of the record, such as "profile": 1 to 64 bytes, chosen by the program,
	// never by a request.
	Bucket string
	// Instance is the instance name of REv2, at most 1024 bytes; it may be empty.
	Instance string
	// Digest is the subject of the record; its digest function is part of the key. A subject with a
	// name takes the digest of the name.
	Digest digest.Digest
}

// String returns the parts of k for messages.
func (k Key) String() string {
	return fmt.Sprintf("%s %q %s %s", k.Bucket, k.Instance, k.Digest.Function(), k.Digest)
}

// Hints keep records of up to 1 MiB that may be lost: profiles and statistics of actions. A record
// may be evicted, a damaged one counts as missing, and an unreadable store of hints is replaced by
// an empty one. The methods may be called concurrently. A store may not support some buckets, and
// fail for them.
type Hints interface {
	// Get returns the value under k, which is not nil and which the caller may change, or an error
	// that wraps ErrNotFound.
	Get(ctx context.Context, k Key) ([]byte, error)
	// Put sets the value under k and keeps no reference to it. Its error wraps ErrInvalid if the
	// key or the value is at fault.
	Put(ctx context.Context, k Key, value []byte) error
}

// Durable keeps records of up to 1 MiB that must not be lost: quotas, drains, leases. None is
// evicted. A damaged one is an error that wraps ErrDamaged and tells the remedy. The methods may be
// called concurrently. When a method that writes has returned nil, the record is as durable as the
// store makes it.
type Durable interface {
	// Get returns the value under k, which is not nil and which the caller may change, or an error
	// that wraps ErrNotFound.
	Get(ctx context.Context, k Key) ([]byte, error)
	// Put sets the value under k and keeps no reference to it. Its error wraps ErrInvalid if the
	// key or the value is at fault.
	Put(ctx context.Context, k Key, value []byte) error
	// CompareAndSwap sets the value under k to value if it is now old, and otherwise returns an
	// error that wraps ErrConflict. A nil old stands for no record; an empty one that is not nil
	// for an empty value.
	CompareAndSwap(ctx context.Context, k Key, old, value []byte) error
}
