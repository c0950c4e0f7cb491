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

// Publish writes what was added, and reports whether the store has all of it.
func (r *Relay) Publish(ctx context.Context) bool {
	for {
		if r.isChanged && !r.put(ctx) {
			return false
		}
		if !r.isWaiting() {
			return true
		}
		if !r.isLocated && !r.locate(ctx) {
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

// locate finds the slot that the last one has written to. It reports whether the store has
// answered.
func (r *Relay) locate(ctx context.Context) bool {
	head, ok := r.readHead(ctx)
	if !ok {
		return false
	}
	r.begin(max(head, 1))
	value, ok := r.shared.Get(ctx, r.key(r.number))
	if !ok {
		return false
	}
	if isSlot(value, r.number) {
		r.slot = value
	}
	r.head, r.isLocated = head, true
	return true
}

func (r *Relay) begin(number uint64) {
	r.number = number
	r.slot = binary.LittleEndian.AppendUint64(make([]byte, 0, slotBytes), number)
}

// put writes the slot as it is now, and then its number if it is a new one.
func (r *Relay) put(ctx context.Context) bool {
	if !r.shared.Put(ctx, r.key(r.number), r.slot) {
		return false
	}
	if r.head < r.number {
		if !r.shared.Put(ctx, r.key(0), binary.LittleEndian.AppendUint64(nil, r.number)) {
			return false
		}
		r.head = r.number
		r.got(place{slot: r.number})
	}
	r.isChanged = false
	return true
}

func isSlot(value []byte, number uint64) bool {
	return len(value) >= slotHeader && binary.LittleEndian.Uint64(value) == number
}

// Pull takes over what others have published since the last time, and reports whether that is all
// of it.
func (r *Relay) Pull(ctx context.Context, into *history.Store) bool {
	head, ok := r.readHead(ctx)
	if !ok {
		return false
	}
	at := r.at
	if at.slot > head || at.slot == 0 && head > 0 { // the store has begun anew, or this one does
		at = place{slot: min(head, 1)}
	}
	if head >= slots && at.slot <= head-slots {
		at = place{slot: head - slots + 1}
	}
	for at.slot > 0 {
		var value []byte
		if value, ok = r.shared.Get(ctx, r.key(at.slot)); !ok {
			break
		}
		if isSlot(value, at.slot) {
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
	return at.slot == head && ok
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
