package budget

import "sync"

// A Budget is an amount of memory for all holders. It may be used concurrently.
type Budget struct {
	most  int64 // 0: it bounds nothing
	share int64 // that a holder has for sure
	pool  int64 // for all that holders have beyond their shares

	mu     sync.Mutex
	used   int64 // at most share for each share that is given out, and pool
	lent   int64 // of pool
	shares int   // that no holder has
}

// New returns a Budget of that many bytes; 0 means no limit. One half is divided into equal shares
// for that many concurrent holders, at least one. Further holders have only the other half.
func New(most int64, holders int) *Budget {
	holders = max(1, holders)
	share := most / 2 / int64(holders)
	return &Budget{most: most, share: share, pool: most - share*int64(holders), shares: holders}
}

// Used returns how much all holders have. It never exceeds the Budget.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// A Holder has a part of a Budget until Close. A nil Holder has no limit. It may be used
// concurrently.
type Holder struct {
	budget *Budget
	share  int64 // the share of the Budget, or 0

	// Guarded by Budget.mu.
	own    int64
	closed bool
}

// Holder returns a new, empty Holder; nil for a nil Budget.
func (b *Budget) Holder() *Holder {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	h := &Holder{budget: b}
	if b.shares > 0 {
		b.shares--
		h.share = b.share
	}
	return h
}

// Take takes n bytes, and reports whether it did. It does if the holder stays within its share, or
// if the pool then has at least as much left as the holder has beyond its share.
func (h *Holder) Take(n int64) bool { return h.take(n, 1) }

// TakeSpare takes n bytes for something dispensable, and reports whether it did. Such things get a
// quarter of the share, and more only while they leave three quarters of the pool.
func (h *Holder) TakeSpare(n int64) bool { return h.take(n, 4) }

// take takes n bytes, as if share and pool were 1/parts of their size.
func (h *Holder) take(n, parts int64) bool {
	if h == nil {
		return true
	}
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.closed {
		return false
	}
	beyond := h.beyondLocked(n)
	lent := b.lent + beyond - h.beyondLocked(0)
	if b.most > 0 && h.own+n > h.share/parts && lent+beyond > b.pool/parts {
		return false
	}
	h.setLocked(h.own + n)
	return true
}

// beyondLocked is how much of the pool the holder has with n more bytes.
func (h *Holder) beyondLocked(n int64) int64 { return max(0, h.own+n-h.share) }

// setLocked lets the holder have that many bytes.
func (h *Holder) setLocked(own int64) {
	b := h.budget
	b.lent -= h.beyondLocked(0)
	b.used += own - h.own
	h.own = own
	b.lent += h.beyondLocked(0)
}

// Exceeds reports whether n more bytes would be too much for the holder even if all others had
// nothing.
func (h *Holder) Exceeds(n int64) bool {
	if h == nil || h.budget.most == 0 {
		return false
	}
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return 2*h.beyondLocked(n) > b.pool
}

// Give returns n of the taken bytes. After Close it does nothing.
func (h *Holder) Give(n int64) {
	if h == nil {
		return
	}
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	if !h.closed {
		h.setLocked(h.own - n)
	}
}

// Close returns all bytes of the holder, which gets no more.
func (h *Holder) Close() {
	if h == nil {
		return
	}
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	h.setLocked(0)
	if h.share > 0 {
		b.shares++
	}
}
