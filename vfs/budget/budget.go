package budget

import "sync/atomic"

// A Budget is so many bytes for all holders. It may be used concurrently.
type Budget struct {
	most    int64
	used    atomic.Int64
	holders atomic.Int64
}

// New returns a Budget of that many bytes; 0: it bounds nothing.
func New(most int64) *Budget { return &Budget{most: most} }

// Used is how much all holders have.
func (b *Budget) Used() int64 { return b.used.Load() }

// A Holder has a part of a Budget until Close. A nil Holder has no bounds. It may be used
// concurrently.
type Holder struct {
	budget *Budget
	own    atomic.Int64
	closed atomic.Bool
}

// Holder returns a new one, which has nothing; nil of a nil Budget.
func (b *Budget) Holder() *Holder {
	if b == nil {
		return nil
	}
	b.holders.Add(1)
	return &Holder{budget: b}
}

// Take takes n bytes, and reports whether it did: it does not where all is used and the holder
// would have more than its equal share.
func (h *Holder) Take(n int64) bool {
	if h == nil {
		return true
	}
	return h.take(n, h.budget.used.Add(n) > h.budget.most, 1)
}

// TakeSpare takes n bytes for what can be done without, and reports whether it did: such things
// have a quarter of the equal share at most, and leave three quarters of all to what cannot.
func (h *Holder) TakeSpare(n int64) bool {
	if h == nil {
		return true
	}
	return h.take(n, h.budget.used.Add(n) > h.budget.most/4, 4)
}

// take ends a Take that has counted n for all: full says that there are more than there should be,
// and only who has more than one part of the equal share, in so many, gives it back.
func (h *Holder) take(n int64, full bool, parts int64) bool {
	b := h.budget
	if h.own.Add(n) > b.most/max(1, b.holders.Load())/parts && full && b.most > 0 {
		h.Give(n)
		return false
	}
	return true
}

// Give gives back n of the bytes that were taken.
func (h *Holder) Give(n int64) {
	if h == nil {
		return
	}
	h.own.Add(-n)
	h.budget.used.Add(-n)
}

// Close gives back all that the holder has. Nobody takes any more.
func (h *Holder) Close() {
	if h == nil || h.closed.Swap(true) {
		return
	}
	h.budget.used.Add(-h.own.Swap(0))
	h.budget.holders.Add(-1)
}
