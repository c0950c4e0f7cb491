package relay

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/history"
)

const (
	// slotHeader has the number of a slot. blockHeader has the length of the rest of the block, the
	// checksum of everything after it, the origin, and the block's number in that origin.
	slotHeader, blockHeader = 8, 4 + 4 + 8 + 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Publish writes new records, and reports whether the store has all of them.
func (r *Relay) Publish(ctx context.Context) bool {
	for {
		if r.isChanged && !r.put(ctx) {
			return false
		}
		if !r.isWaiting() {
			return true
		}
		if r.slot == nil && !r.locate(ctx) {
			return false
		}
		block := r.pack(r.take())
		if len(r.slot) > slotHeader && len(r.slot)+len(block) > slotBytes {
			r.begin(r.number + 1)
		}
		r.slot = append(r.slot, block...)
		r.isChanged = true
	}
}

func (r *Relay) isWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) > 0
}

// take returns the records of the next block, at least one.
func (r *Relay) take() (raw []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(r.waiting) {
		next := n + 4 + int(binary.LittleEndian.Uint32(r.waiting[n:]))
		if n > 0 && next > blockBytes {
			break
		}
		n = next
	}
	raw = r.waiting[:n:n]
	if r.waiting = r.waiting[n:]; len(r.waiting) == 0 {
		r.waiting, r.isFull = nil, false
	}
	return raw
}

// pack makes the next block. Numbers rise even if the folder is older than its published blocks, or
// if the clock is set back.
func (r *Relay) pack(raw []byte) []byte {
	r.last = max(r.last+1, uint64(time.Now().UnixNano()))
	b := r.encoder.EncodeAll(raw, make([]byte, blockHeader, blockHeader+len(raw)/2))
	binary.LittleEndian.PutUint64(b[16:], r.last)
	binary.LittleEndian.PutUint64(b[8:], r.origin)
	binary.LittleEndian.PutUint32(b, uint32(len(b)-blockHeader))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

// A block is a part of a slot.
type block struct {
	origin, number uint64
	packed         []byte
}

// blocks returns the intact blocks of a slot, and reports whether these are all.
func blocks(slot []byte) (list []block, isIntact bool) {
	rest := slot[min(slotHeader, len(slot)):]
	for len(rest) >= blockHeader {
		n := int(binary.LittleEndian.Uint32(rest))
		if n > len(rest)-blockHeader || crc32.Checksum(rest[8:blockHeader+n], castagnoli) != binary.LittleEndian.Uint32(rest[4:]) {
			break
		}
		list = append(list, block{binary.LittleEndian.Uint64(rest[8:]), binary.LittleEndian.Uint64(rest[16:]), rest[blockHeader : blockHeader+n]})
		rest = rest[blockHeader+n:]
	}
	return list, len(rest) == 0
}

// locate finds the last published slot. If the store has lost or damaged that slot, it begins the
// next one. It reports whether the store has answered.
func (r *Relay) locate(ctx context.Context) bool {
	at, head, ok := r.next(ctx)
	if !ok {
		return false
	}
	last := max(head, at)
	value, ok := r.shared.Get(ctx, r.key(last))
	if !ok {
		return false
	}
	r.begin(last + 1)
	if last == 0 || !isSlot(value, last) {
		return true
	}
	list, isIntact := blocks(value)
	for _, b := range list {
		if b.origin == r.origin {
			r.last = max(r.last, b.number)
		}
	}
	if isIntact {
		r.number, r.slot = last, value
	}
	return true
}

func (r *Relay) begin(number uint64) {
	r.number = number
	r.slot = binary.LittleEndian.AppendUint64(make([]byte, 0, slotBytes), number)
}

// put writes the present slot and then its number. It always writes both, because the store may
// have lost the number. It moves the position forward only if nothing from other schedulers remains
// to be copied.
func (r *Relay) put(ctx context.Context) bool {
	if !r.options.May() || !r.shared.Put(ctx, r.key(r.number), r.slot) ||
		!r.shared.Put(ctx, r.key(0), binary.LittleEndian.AppendUint64(nil, r.number)) {
		return false
	}
	if r.hasAll && r.at < r.number {
		r.got(r.number)
	}
	r.isChanged = false
	return true
}

func isSlot(value []byte, number uint64) bool {
	return len(value) >= slotHeader && binary.LittleEndian.Uint64(value) == number
}

// Pull copies the records that others have published since the last call, and reports whether these
// are all.
func (r *Relay) Pull(ctx context.Context, into *history.Store) bool {
	r.hasAll = r.pull(ctx, into)
	return r.hasAll
}

func (r *Relay) pull(ctx context.Context, into *history.Store) bool {
	at, head, ok := r.next(ctx)
	if !ok || head == 0 {
		return ok
	}
	isNew := false
	for {
		var value []byte
		if value, ok = r.shared.Get(ctx, r.key(at)); !ok {
			break
		}
		if isSlot(value, at) && r.unpack(value, into) {
			isNew = true
		}
		if at == head {
			break
		}
		at++
	}
	if isNew || at != r.at {
		into.Flush()
		r.got(at)
	}
	return ok
}

// next returns the next slot to copy and the last slot; 0 if there is none. It returns false if the
// store does not answer. If the store has returned to an older state, or is empty, all slots are
// read again.
func (r *Relay) next(ctx context.Context) (at, head uint64, ok bool) {
	at = r.at
	if head, ok = r.readHead(ctx); !ok {
		return at, 0, false
	}
	if at > head {
		value, ok := r.shared.Get(ctx, r.key(at))
		switch {
		case !ok:
			return at, 0, false
		case isSlot(value, at): // only the number of the last slot was lost
			head = at
		case head > 0:
			at = 0
		}
	}
	if head > 0 {
		at = max(at, 1)
	}
	if head >= slots {
		at = max(at, head-slots+1)
	}
	return at, head, true
}

// got saves the position at.
func (r *Relay) got(at uint64) {
	r.at = at
	if err := r.save(); err != nil {
		r.options.Logger.Warn("cannot save the position in other schedulers' records; after a restart some records may appear twice", zap.Error(err))
	}
}

// unpack stores the records of new blocks, and reports whether there were any. It examines all
// blocks: an older state of a slot may be shorter than the state that was read before, and continue
// with other blocks.
func (r *Relay) unpack(slot []byte, into *history.Store) (isNew bool) {
	list, _ := blocks(slot)
	for _, b := range list {
		if b.origin == r.origin || b.origin == 0 || b.number <= r.lastOf(b.origin) {
			continue
		}
		isNew = true
		r.know(b)
		if raw, err := r.decoder.DecodeAll(b.packed, nil); err == nil {
			into.Import(raw)
		}
	}
	return isNew
}

// lastOf returns the number of the last copied block of an origin. An unknown origin may be one of
// the forgotten ones, whose blocks must not be copied again. Block numbers are times, so those of a
// new origin are larger.
func (r *Relay) lastOf(origin uint64) uint64 {
	if number, known := r.known[origin]; known {
		return number
	}
	return r.past
}

// know notes a block. If there are too many origins, it forgets the one that has not published for
// longest.
func (r *Relay) know(b block) {
	if _, known := r.known[b.origin]; !known && len(r.known) == maxOrigins {
		oldest := b.origin
		for origin, number := range r.known {
			if oldest == b.origin || number < r.known[oldest] {
				oldest = origin
			}
		}
		r.past = max(r.past, r.known[oldest])
		delete(r.known, oldest)
	}
	r.known[b.origin] = b.number
}
