package budget

import "testing"

func TestBudget(t *testing.T) {
	b := New(100)
	greedy := b.Holder()
	for range 100 {
		if !greedy.Take(1) {
			t.Fatal("one holder cannot have all that there is")
		}
	}
	if greedy.Take(1) {
		t.Error("one holder has more than there is")
	}
	modest := b.Holder()
	for range 50 {
		if !modest.Take(1) {
			t.Fatal("who comes later has no share")
		}
	}
	if modest.Take(1) || greedy.Take(1) || b.Used() != 150 {
		t.Errorf("beyond the shares %d are used", b.Used())
	}
	greedy.Give(60)
	if !modest.Take(1) || b.Used() != 91 {
		t.Errorf("what was given back is not there: %d are used", b.Used())
	}
	greedy.Close()
	greedy.Close()
	if b.Used() != 51 || !modest.Take(49) || modest.Take(1) {
		t.Errorf("what a closed holder had is not there: %d are used", b.Used())
	}
}

func TestSpare(t *testing.T) {
	b := New(100)
	h, other := b.Holder(), b.Holder()
	if !h.TakeSpare(25) || h.TakeSpare(1) || b.Used() != 25 {
		t.Errorf("%d are used for what can be done without", b.Used())
	}
	if !other.TakeSpare(12) || other.TakeSpare(1) { // a quarter of its share
		t.Errorf("%d are used for what can be done without", b.Used())
	}
	if !h.Take(50) {
		t.Error("there is no room for what cannot be done without")
	}
}

func TestWithoutBounds(t *testing.T) {
	var none *Budget
	nobody, free := none.Holder(), New(0).Holder()
	for _, h := range []*Holder{nobody, free} {
		if !h.Take(1<<40) || !h.TakeSpare(1<<40) {
			t.Error("there is a bound")
		}
		h.Give(1)
		h.Close()
	}
}
