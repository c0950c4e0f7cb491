package budget

import "testing"

// fill takes byte by byte what the holder gets, and returns how much that was.
func fill(take func(int64) bool) (n int64) {
	for n < 1000 && take(1) {
		n++
	}
	return n
}

// TestBudget has holders fill up one after another. Later ones must have their shares, and all
// together must not exceed the budget.
func TestBudget(t *testing.T) {
	const most, holders, share = 1000, 10, 50
	b := New(most, holders)
	greedy := b.Holder()
	if got := fill(greedy.Take); got != share+250 {
		t.Errorf("the first has %d, want its share and half of the pool", got)
	}
	if !greedy.Exceeds(1) || greedy.Exceeds(0) {
		t.Error("it would have more alone")
	}
	second := b.Holder()
	if got := fill(second.Take); got != share+125 || second.Exceeds(1) {
		t.Errorf("the second has %d, and more is too much: %t", got, second.Exceeds(1))
	}
	for i := 2; i < holders; i++ {
		if got := fill(b.Holder().Take); got < share {
			t.Errorf("holder %d has %d, less than its share", i, got)
		}
	}
	for range 10 { // holders without a share
		fill(b.Holder().Take)
	}
	if used := b.Used(); used > most || used < most-10 {
		t.Errorf("%d are used, of %d", used, most)
	}
	greedy.Give(200)
	if used := b.Used(); used > most-200 || !second.Take(1) {
		t.Errorf("what was given back is not there: %d are used", used)
	}
	before := b.Used()
	greedy.Close()
	greedy.Close()
	if got := before - b.Used(); got != 100 {
		t.Errorf("a closed holder gives back %d", got)
	}
	if got := fill(b.Holder().Take); got < share {
		t.Errorf("who comes after it has %d, less than its share", got)
	}
}

func TestSpare(t *testing.T) {
	b := New(800, 4) // shares of 100, and 400
	h, other := b.Holder(), b.Holder()
	if got := fill(h.TakeSpare); got != 150 {
		t.Errorf("%d are for what can be done without", got)
	}
	if got := fill(h.Take); got != 150 {
		t.Errorf("%d are for what cannot", got)
	}
	if got := fill(other.TakeSpare); got != 25 { // of its share only
		t.Errorf("%d are for what another can do without", got)
	}
	if got := fill(other.Take); got != 175 {
		t.Errorf("%d are for what another cannot do without", got)
	}
}

// TestGiveAfterClose: bytes that are given back after Close count only once.
func TestGiveAfterClose(t *testing.T) {
	b := New(100, 1)
	h, other := b.Holder(), b.Holder()
	if !h.Take(10) || !other.Take(5) {
		t.Fatal("there is no room")
	}
	h.Close()
	if h.Give(10); b.Used() != 5 {
		t.Errorf("%d are used, want 5", b.Used())
	}
	if h.Take(1) || b.Used() != 5 {
		t.Errorf("a closed holder takes; %d are used", b.Used())
	}
}

func TestWithoutBounds(t *testing.T) {
	var none *Budget
	nobody, free := none.Holder(), New(0, 0).Holder()
	for _, h := range []*Holder{nobody, free} {
		if !h.Take(1<<40) || !h.TakeSpare(1<<40) || h.Exceeds(1<<40) {
			t.Error("there is a bound")
		}
		h.Give(1)
		h.Close()
	}
}
