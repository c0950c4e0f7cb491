package bounded

import "testing"

// TestMemory: the first value of a key stays, and a value that exceeds the limit is not kept.
func TestMemory(t *testing.T) {
	s := NewMemory[string, int](3 * memoryOverhead)
	if got := s.Add("a", 1, 0); got != 1 {
		t.Errorf("added 1, got %d", got)
	}
	if got := s.Add("a", 2, 0); got != 1 {
		t.Errorf("added another value, got %d", got)
	}
	if got := s.Add("large", 3, 2*memoryOverhead+1); got != 3 {
		t.Errorf("added what is too large, got %d", got)
	}
	if _, ok := s.Get("large"); ok {
		t.Error("it keeps what is too large")
	}
	s.Add("b", 4, 0)
	s.Get("a")
	s.Add("c", 5, 1)
	_, a := s.Get("a")
	_, b := s.Get("b")
	_, c := s.Get("c")
	if !a || b || !c {
		t.Errorf("it has a: %t, b: %t, c: %t, want all but b, the least recently used", a, b, c)
	}
}
