package relay

import (
	"context"
	"encoding/binary"
	"hash/crc32"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/history"
)

const (
	// slotHeader has the number of a slot, blockHeader the length of what follows it, its checksum
	// and whose it is.
	slotHeader, blockHeader = 8, 4 + 4 + 8
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

// take returns the records of the next block, one at least.
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

// pack makes a block.
func (r *Relay) pack(raw []byte) []byte {
	block := r.encoder.EncodeAll(raw, make([]byte, blockHeader, blockHeader+len(raw)/2))
	binary.LittleEndian.PutUint64(block[8:], r.origin)
	binary.LittleEndian.PutUint32(block, uint32(len(block)-blockHeader))
	binary.LittleEndian.PutUint32(block[4:], crc32.Checksum(block[8:], castagnoli))
	return block
}

// locate finds the slot that the last one has written to, or begins the one after it if the store
// has lost that. It reports whether the store has answered.
func (r *Relay) locate(ctx context.Context) bool {
	at, head, ok := r.next(ctx)
	if !ok {
		return false
	}
	last := max(head, at.slot)
	value, ok := r.shared.Get(ctx, r.key(last))
	if !ok {
		return false
	}
	if last > 0 && isSlot(value, last) {
		r.number, r.slot = last, value
	} else {
		r.begin(last + 1)
	}
	return true
}

func (r *Relay) begin(number uint64) {
	r.number = number
	r.slot = binary.LittleEndian.AppendUint64(make([]byte, 0, slotBytes), number)
}

// put writes the slot as it is now, and then its number, each time, since the store may have lost
// that. While something of others is still to be taken over, where that begins stays noted.
func (r *Relay) put(ctx context.Context) bool {
	if !r.options.May() || !r.shared.Put(ctx, r.key(r.number), r.slot) ||
		!r.shared.Put(ctx, r.key(0), binary.LittleEndian.AppendUint64(nil, r.number)) {
		return false
	}
	if r.hasAll && r.at.slot < r.number {
		r.got(place{slot: r.number})
	}
	r.isChanged = false
	return true
}

func isSlot(value []byte, number uint64) bool {
	return len(value) >= slotHeader && binary.LittleEndian.Uint64(value) == number
}

// Pull copies the records that others have published since the last time, and reports whether these
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
	for {
		var value []byte
		if value, ok = r.shared.Get(ctx, r.key(at.slot)); !ok {
			break
		}
		if isSlot(value, at.slot) {
			if at.offset > len(value) { // it was begun anew
				at.offset = slotHeader
			}
			at.offset = r.unpack(value, max(at.offset, slotHeader), into)
		}
		if at.slot == head {
			break
		}
		at = place{slot: at.slot + 1}
	}
	if at != r.at {
		into.Flush()
		r.got(at)
	}
	return ok
}

// next returns where what is to be taken over begins, and the last slot, 0 if there is none; false:
// the store does not answer.
func (r *Relay) next(ctx context.Context) (at place, head uint64, ok bool) {
	at = r.at
	if head, ok = r.readHead(ctx); !ok {
		return at, 0, false
	}
	if at.slot > head {
		value, ok := r.shared.Get(ctx, r.key(at.slot))
		switch {
		case !ok:
			return at, 0, false
		case isSlot(value, at.slot): // only the number of the last slot was lost
			head = at.slot
		case head > 0: // the store has begun anew
			at = place{}
		}
	}
	if at.slot == 0 && head > 0 {
		at = place{slot: 1}
	}
	if head >= slots && at.slot <= head-slots {
		at = place{slot: head - slots + 1}
	}
	return at, head, true
}

// got notes how far this one has got.
func (r *Relay) got(at place) {
	r.at = at
	if err := r.save(); err != nil {
		r.options.Logger.Warn("cannot note which records of other schedulers are here: after a restart some may be here twice", zap.Error(err))
	}
}

// unpack keeps the records of the blocks from an offset on, and returns where they end. What is
// damaged is the last one.
func (r *Relay) unpack(slot []byte, offset int, into *history.Store) int {
	for offset+blockHeader <= len(slot) {
		header := slot[offset:]
		n := int(binary.LittleEndian.Uint32(header))
		if n > len(header)-blockHeader || crc32.Checksum(header[8:blockHeader+n], castagnoli) != binary.LittleEndian.Uint32(header[4:]) {
			return len(slot)
		}
		if binary.LittleEndian.Uint64(header[8:]) != r.origin {
			if raw, err := r.decoder.DecodeAll(header[blockHeader:blockHeader+n], nil); err == nil {
				into.Import(raw)
			}
		}
		offset += blockHeader + n
	}
	return min(offset, len(slot))
}
