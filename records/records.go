package records

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/records/record"
)

// The limits of one record.
const (
	// MaxValueBytes is the maximum size of a value.
	MaxValueBytes = 1 << 20

	maxBucketBytes = 64 // of the name of a bucket
)

// The kinds of errors that callers distinguish with errors.Is.
var (
	// ErrNotFound means that there is no record under the key.
	ErrNotFound = record.ErrNotFound
	// ErrConflict means that the record differs from the old value in CompareAndSwap.
	ErrConflict = record.ErrConflict
	// ErrInvalid means that the key or the value breaks a rule of the store. A retry is useless.
	ErrInvalid = record.ErrInvalid
	// ErrDamaged means that a durable record differs from the bytes that were written.
	ErrDamaged = record.ErrDamaged
	// ErrLocked means that another process has the file of a Bolt open.
	ErrLocked = errors.New("file is in use by another process")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("store is closed")
)

// The types of package record. Once Put has returned, every Get returns its value.
type (
	// A Key names a record.
	Key = record.Key
	// Hints store records that may be lost.
	Hints = record.Hints
	// Durable stores records that must not be lost.
	Durable = record.Durable
)

// check returns an error that wraps ErrInvalid if k breaks a rule.
func check(k Key) error {
	switch {
	case k.Bucket == "" || len(k.Bucket) > maxBucketBytes:
		return fmt.Errorf("%w: name of the bucket has %d bytes, want 1 to %d",
			ErrInvalid, len(k.Bucket), maxBucketBytes)
	case len(k.Instance) > instance.MaxBytes:
		return fmt.Errorf("%w: instance name has %d bytes, at most %d are allowed",
			ErrInvalid, len(k.Instance), instance.MaxBytes)
	case k.Digest.IsZero():
		return fmt.Errorf("%w: key has no digest", ErrInvalid)
	}
	return nil
}

// checkValue returns an error that wraps ErrInvalid if a value of n bytes is too large, by itself
// or for a bucket of limit bytes.
func checkValue(k Key, n int, limit int64) error {
	if n > MaxValueBytes {
		return fmt.Errorf("%w: value has %d bytes, at most %d are allowed", ErrInvalid, n, MaxValueBytes)
	}
	if size := recordBytes(k, n); size > limit {
		return fmt.Errorf("%w: record takes %d bytes, its whole bucket has %d", ErrInvalid, size, limit)
	}
	return nil
}

// recordBytes returns the size that counts for a record with a value of n bytes: its key and its
// entry in both the values and the uses of a Bolt.
func recordBytes(k Key, n int) int64 { return 144 + 2*int64(len(k.Instance)) + int64(n) }

// encodeKey returns k without its bucket. The parts before the instance name have a fixed length,
// so that different keys have different encodings.
func encodeKey(k Key) []byte {
	b := make([]byte, 0, 1+digest.HashSize+8+len(k.Instance))
	b = k.Digest.AppendHash(append(b, byte(k.Digest.Function())))
	b = binary.BigEndian.AppendUint64(b, uint64(k.Digest.SizeBytes()))
	return append(b, k.Instance...)
}

// about adds the operation and the record to an error.
func about(operation string, k Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s record %s: %w", operation, k, err)
}
