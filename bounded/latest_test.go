package bounded

import (
	"sync"
	"testing"
)

func TestLatest(t *testing.T) {
	l := NewLatest[string, int](2)
	if k, _, ok := l.Oldest(); ok {
		t.Errorf("an empty one has %q", k)
	}
	l.Put("a", 1)
	l.Put("b", 2)
	l.Get("a")
	if k, v, ok := l.Oldest(); k != "b" || v != 2 || !ok {
		t.Errorf("the oldest is %q, %d, %t", k, v, ok)
	}
	l.Remove("b")
	l.Remove("c") // does not exist
	l.Put("d", 4)
	if v, ok := l.Peek("a"); v != 1 || !ok || l.Len() != 2 {
		t.Errorf("a is %d, %t, of %d", v, ok, l.Len())
	}
	l.Put("e", 5)
	if _, ok := l.Peek("a"); ok {
		t.Error("a stays, although a peek is no use")
	}
}

func TestShared(t *testing.T) {
	s := NewShared[string, int](2)
	s.Put("a", 1)
	s.Put("b", 2)
	if !s.Has("a") { // no use
		t.Fatal("a is gone too early")
	}
	s.Put("c", 3)
	if s.Has("a") {
		t.Error("a stays, although it was used least recently")
	}
	if v, ok := s.Get("b"); !ok || v != 2 {
		t.Errorf("b is %d, %t", v, ok)
	}
	s.Put("d", 4)
	if _, ok := s.Get("c"); ok || !s.Has("b") || s.Len() != 2 {
		t.Errorf("c stays: %t, b stays: %t, %d entries", ok, s.Has("b"), s.Len())
	}
	s.Put("b", 5)
	if v, _ := s.Get("b"); v != 5 {
		t.Errorf("b is %d, want 5", v)
	}
}

func TestSharedConcurrently(t *testing.T) {
	s := NewShared[int, int](10)
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 1000 {
				s.Put(i%20, i%20*g)
				if v, ok := s.Get(i % 20); ok && i%20 > 0 && v%(i%20) != 0 {
					t.Errorf("%d has the value %d of another", i%20, v)
				}
			}
		})
	}
	group.Wait()
	if n := s.Len(); n != 10 {
		t.Errorf("%d entries, want 10", n)
	}
}
