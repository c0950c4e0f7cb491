package records

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/zap"
)

// BoltOptions are the options of a Bolt. Zero values mean the defaults.
type BoltOptions struct {
	Logger *zap.Logger
	// MaxBytes limits each bucket; default 128 MiB. BucketMaxBytes has the limits of buckets that
	// differ. The file takes up to about twice the sum of the limits and 32 MiB, and never shrinks.
	MaxBytes       int64
	BucketMaxBytes map[string]int64
	// LockTimeout is how long OpenBolt waits for another process to close the file; default 2 s.
	LockTimeout time.Duration
	// CommitAfter is how long a write may wait so that other writes share its commit; default 500
	// ms.
	CommitAfter time.Duration
}

func (o *BoltOptions) validate() {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = 2 * time.Second
	}
	if o.CommitAfter <= 0 {
		o.CommitAfter = 500 * time.Millisecond
	}
}

// limit returns the maximum size of a bucket in bytes.
func (o *BoltOptions) limit(bucket string) int64 {
	if limit := o.BucketMaxBytes[bucket]; limit > 0 {
		return limit
	}
	return o.MaxBytes
}

var _ Hints = (*Bolt)(nil)

// A Bolt stores Hints in one bbolt file. OpenBolt opens it; Close closes it.
type Bolt struct {
	options BoltOptions
	log     *zap.Logger
	db      *bbolt.DB
	queue   *queue

	closing sync.Once
	stop    chan struct{} // closed to stop the committer
	stopped chan struct{} // closed when the committer has stopped
	// bytes has the size of each bucket's records; failing is whether the last commit failed. Only
	// the committer uses them.
	bytes   map[string]int64
	failing bool
	broken  atomic.Bool // a commit panicked: bbolt may hold its locks forever
}

// OpenBolt opens the file at path. It creates the file and its folder if they do not exist. If
// another process holds the file for longer than LockTimeout, the error wraps ErrLocked. A damaged
// file is logged, renamed to path.damaged-TIME, and replaced by a new one.
func OpenBolt(path string, o BoltOptions) (*Bolt, error) {
	o.validate()
	db, err := openFile(path, o.LockTimeout, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open records %s: %w", path, err)
	}
	b := &Bolt{
		options: o,
		log:     o.Logger,
		db:      db,
		queue:   newQueue(),
		bytes:   map[string]int64{},
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	if err := b.countUses(); err != nil {
		return nil, errors.Join(fmt.Errorf("read records %s: %w", path, err), db.Close())
	}
	go b.commitAll()
	return b, nil
}

// Close commits the queue and closes the file. It returns the error of a failed commit that no
// Flush has returned. After it, all methods return ErrClosed, except Close, which does nothing.
func (b *Bolt) Close() (err error) {
	b.closing.Do(func() {
		b.queue.close()
		close(b.stop)
		<-b.stopped
		err = b.queue.takeFailure()
		if !b.broken.Load() {
			err = errors.Join(err, noteSum(b.db.Path()), b.db.Close())
		}
	})
	return err
}

// Flush waits until everything that was queued before is committed, or until ctx ends. It returns
// the error of commits that failed since the last Flush with an error.
func (b *Bolt) Flush(ctx context.Context) error {
	if err := b.queue.flush(ctx); err != nil {
		return fmt.Errorf("flush records %s: %w", b.db.Path(), err)
	}
	return nil
}

// Get implements Hints.
func (b *Bolt) Get(ctx context.Context, k Key) ([]byte, error) {
	if err := usable(ctx, k); err != nil {
		return nil, about("get", k, err)
	}
	value, err := b.current(k)
	if err == nil && value == nil {
		err = ErrNotFound
	}
	if err != nil {
		return nil, about("get", k, err)
	}
	b.queue.used(k)
	return value, nil
}

// Put implements Hints. It waits only while the queue is full.
func (b *Bolt) Put(ctx context.Context, k Key, value []byte) error {
	if err := b.storable(ctx, k, value); err != nil {
		return about("put", k, err)
	}
	return about("put", k, b.queue.put(ctx, k, &write{stored: seal(k, value)}))
}

func (b *Bolt) storable(ctx context.Context, k Key, value []byte) error {
	if err := usable(ctx, k); err != nil {
		return err
	}
	return checkValue(k, len(value), b.options.limit(k.Bucket))
}

// current returns a copy of the value under k; nil if there is no record.
func (b *Bolt) current(k Key) (value []byte, err error) {
	queued, closed := b.queue.look(k)
	switch {
	case closed:
		return nil, ErrClosed
	case b.broken.Load():
		return nil, errDamaged
	case queued != nil:
		return append([]byte{}, queued.stored[sumBytes:]...), nil
	}
	err = guard(func() error {
		return b.db.View(func(tx *bbolt.Tx) error {
			values := tx.Bucket(valuesName(k.Bucket))
			if values == nil {
				return nil
			}
			key := encodeKey(k)
			value = unseal(key, values.Get(key))
			return nil
		})
	})
	if errors.Is(err, errNotOpen) {
		err = ErrClosed
	}
	return value, err
}

// sumBytes is the length of the checksum before each value.
const sumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal returns the stored form of a value: a checksum of key and value, then the value.
func seal(k Key, value []byte) []byte {
	stored := make([]byte, sumBytes, sumBytes+len(value))
	sum := crc32.Update(crc32.Checksum(encodeKey(k), castagnoli), castagnoli, value)
	binary.LittleEndian.PutUint32(stored, sum)
	return append(stored, value...)
}

// unseal returns a copy of the value in the stored form of an encoded key; nil if there is none or
// it is damaged.
func unseal(key, stored []byte) []byte {
	if len(stored) < sumBytes {
		return nil
	}
	value := append([]byte{}, stored[sumBytes:]...)
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	if sum != binary.LittleEndian.Uint32(stored) {
		return nil
	}
	return value
}

// guard calls f and turns a panic into an error. If the disk returns other bytes than were written,
// bbolt panics, and its memory-mapped file causes faults. The store has only hints, which must not
// crash the program. The few goroutines of bbolt itself are not guarded.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %v", errDamaged, fault)
		}
	}()
	return f()
}
