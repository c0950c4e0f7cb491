package records

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/instance"
)

// usesEvery is the interval of writing the times of last use, unless an eviction needs them sooner.
const usesEvery = time.Minute

// Each bucket of records consists of two bbolt buckets with the same keys: one has the values, the
// other has each record's time of last use and size. So a new time of last use does not rewrite a
// value, and an eviction does not read values.
const (
	valuesPrefix = "values "
	usesPrefix   = "uses "
)

func valuesName(bucket string) []byte { return []byte(valuesPrefix + bucket) }
func usesName(bucket string) []byte   { return []byte(usesPrefix + bucket) }

// useBytes is the length of an entry in uses: nanoseconds since 1970, and the size in bytes.
const useBytes = 12

func encodeUse(stamp, bytes int64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, useBytes), uint64(stamp))
	return binary.BigEndian.AppendUint32(b, uint32(bytes))
}

// decodeUse decodes an entry. It returns zeroes for a missing one. An impossible entry, which is
// due to damage, counts as a small record that was never used.
func decodeUse(b []byte) (stamp, bytes int64) {
	if b == nil {
		return 0, 0
	}
	smallest, largest := recordBytes(Key{}, 0), recordBytes(Key{}, MaxValueBytes)+2*instance.MaxBytes
	if len(b) != useBytes {
		return 0, smallest
	}
	stamp, bytes = int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint32(b[8:]))
	if stamp < 0 || stamp > math.MaxInt64/2 || bytes < smallest || bytes > largest {
		return 0, smallest
	}
	return stamp, bytes
}

// countUses adds up the sizes of each bucket's records. It also ensures that new times of last use
// are later than all in the file.
func (b *Bolt) countUses() error {
	last := int64(0)
	err := guard(func() error {
		return b.db.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(name []byte, uses *bbolt.Bucket) error {
				bucket, ok := strings.CutPrefix(string(name), usesPrefix)
				if !ok {
					return nil
				}
				return uses.ForEach(func(_, v []byte) error {
					stamp, bytes := decodeUse(v)
					last = max(last, stamp)
					b.bytes[bucket] += bytes
					return nil
				})
			})
		})
	})
	b.queue.startAfter(last)
	return err
}

// commitAll commits the queue until the Bolt is closed.
func (b *Bolt) commitAll() {
	defer close(b.stopped)
	ticks := time.NewTicker(usesEvery)
	defer ticks.Stop()
	for {
		withUses := false
		select {
		case <-b.queue.begun:
			b.gather()
		case <-ticks.C:
			withUses = true
		case <-b.stop:
			b.commit(true)
			return
		}
		b.commit(withUses)
	}
}

// gather waits so that other writes can join the batch.
func (b *Bolt) gather() {
	timer := time.NewTimer(b.options.CommitAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.queue.urgent:
	case <-b.stop:
	}
}

// commit writes the waiting batch. It writes the times of last use if asked to, or if records must
// be evicted.
func (b *Bolt) commit(withUses bool) {
	batch := b.queue.take()
	var uses map[Key]int64
	if withUses {
		uses = b.queue.takeUses()
	}
	var err error
	if len(batch.writes) > 0 || len(uses) > 0 {
		err = b.update(batch, uses)
	}
	b.queue.committed(err)
	switch {
	case err != nil && !b.failing:
		b.log.Error("records are lost: cannot write their file",
			zap.String("path", b.db.Path()), zap.Int("records", len(batch.writes)), zap.Error(err))
	case err == nil && b.failing && len(batch.writes) > 0:
		b.log.Info("the file of records can be written again", zap.String("path", b.db.Path()))
	case err == nil && len(batch.writes) == 0:
		return
	}
	b.failing = err != nil
}

// update writes one transaction. If bbolt panics, it may hold its locks, so it is not called again.
// The file is renamed, so that the next process starts a new one.
func (b *Bolt) update(batch *batch, uses map[Key]int64) error {
	if b.broken.Load() {
		return errDamaged
	}
	t := &transaction{before: b.bytes, buckets: map[string]*boltBucket{}}
	err := guard(func() error {
		return b.db.Update(func(tx *bbolt.Tx) error {
			t.tx = tx
			return b.apply(t, batch, uses)
		})
	})
	if err == nil {
		for name, bucket := range t.buckets {
			b.bytes[name] = bucket.bytes
		}
	}
	if errors.Is(err, errDamaged) {
		b.broken.Store(true)
		_, aside := setAside(b.db.Path())
		err = errors.Join(err, aside)
	}
	return err
}

// apply makes the changes of one transaction.
func (b *Bolt) apply(t *transaction, batch *batch, uses map[Key]int64) error {
	for k, w := range batch.writes {
		bucket, err := t.bucket(k.Bucket)
		if err != nil {
			return err
		}
		if err := bucket.write(k, w); err != nil {
			return fmt.Errorf("write record %s: %w", k, err)
		}
	}
	for name, bucket := range t.buckets {
		if bucket.bytes > b.options.limit(name) && uses == nil {
			uses = b.queue.takeUses()
		}
	}
	if err := t.use(uses); err != nil {
		return err
	}
	for name, bucket := range t.buckets {
		if limit := b.options.limit(name); bucket.bytes > limit {
			if err := bucket.evict(limit - limit/10); err != nil {
				return fmt.Errorf("evict from bucket %s: %w", name, err)
			}
		}
	}
	return nil
}

// A transaction is a bbolt transaction with the buckets that it has used.
type transaction struct {
	tx      *bbolt.Tx
	before  map[string]int64 // size of each bucket's records before the transaction
	buckets map[string]*boltBucket
}

// A boltBucket is one bucket of records in a transaction.
type boltBucket struct {
	values, uses *bbolt.Bucket
	bytes        int64
}

// bucket returns the bucket of that name, and creates it if necessary.
func (t *transaction) bucket(name string) (*boltBucket, error) {
	if bucket := t.buckets[name]; bucket != nil {
		return bucket, nil
	}
	values, err := t.tx.CreateBucketIfNotExists(valuesName(name))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	uses, err := t.tx.CreateBucketIfNotExists(usesName(name))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	bucket := &boltBucket{values: values, uses: uses, bytes: t.before[name]}
	t.buckets[name] = bucket
	return bucket, nil
}

// use writes times of last use. It skips records that no longer exist.
func (t *transaction) use(stamps map[Key]int64) error {
	for k, stamp := range stamps {
		bucket, err := t.bucket(k.Bucket)
		if err != nil {
			return err
		}
		key := encodeKey(k)
		before, bytes := decodeUse(bucket.uses.Get(key))
		if bytes == 0 || before >= stamp {
			continue
		}
		if err := bucket.uses.Put(key, encodeUse(stamp, bytes)); err != nil {
			return fmt.Errorf("write use of record %s: %w", k, err)
		}
	}
	return nil
}

// write writes one record.
func (b *boltBucket) write(k Key, w *write) error {
	key := encodeKey(k)
	_, before := decodeUse(b.uses.Get(key))
	bytes := recordBytes(k, len(w.stored)-sumBytes)
	b.bytes += bytes - before
	if err := b.values.Put(key, w.stored); err != nil {
		return err
	}
	return b.uses.Put(key, encodeUse(w.stamp, bytes))
}

// remove deletes a record of that size, if it exists.
func (b *boltBucket) remove(key []byte, bytes int64) error {
	b.bytes -= bytes
	return errors.Join(b.values.Delete(key), b.uses.Delete(key))
}

// evict removes the least recently used records until at most limit bytes are left. It reads the
// times of last use twice, so that it need not hold all keys in memory.
func (b *boltBucket) evict(limit int64) error {
	type use struct{ stamp, bytes int64 }
	var uses []use
	_ = b.uses.ForEach(func(_, v []byte) error {
		stamp, bytes := decodeUse(v)
		uses = append(uses, use{stamp, bytes})
		return nil
	})
	slices.SortFunc(uses, func(x, y use) int { return cmp.Compare(x.stamp, y.stamp) })
	last, lastBytes, excess := int64(-1), int64(0), b.bytes-limit
	for _, u := range uses {
		if excess <= 0 {
			break
		}
		if u.stamp > last {
			last, lastBytes = u.stamp, 0
		}
		excess -= u.bytes
		lastBytes += u.bytes // size of the records with the last time; damage can make times equal
	}
	var gone [][]byte
	_ = b.uses.ForEach(func(k, v []byte) error {
		stamp, bytes := decodeUse(v)
		if stamp == last {
			lastBytes -= bytes
		}
		if stamp < last || stamp == last && lastBytes >= 0 {
			gone = append(gone, slices.Clone(k))
		}
		return nil
	})
	for _, key := range gone {
		_, bytes := decodeUse(b.uses.Get(key))
		if err := b.remove(key, bytes); err != nil {
			return err
		}
	}
	return nil
}
