package fifo

import (
	"slices"
	"testing"
)

func TestList(t *testing.T) {
	var l List[string]
	if _, ok := l.Front(); ok || l.Len() != 0 {
		t.Error("an empty list has a value")
	}
	l.PushBack("a")
	b := l.PushBack("b")
	l.PushBack("c")
	l.Remove(b)
	l.Remove(b)
	if all := slices.Collect(l.Values()); !slices.Equal(all, []string{"a", "c"}) || l.Len() != 2 {
		t.Errorf("%q", all)
	}
	if first, ok := l.Front(); first != "a" || !ok {
		t.Errorf("first %q, %t", first, ok)
	}
	l.PushBack("b")
	anchors := map[string]Anchor{}
	for _, v := range []string{"d", "e"} {
		anchors[v] = l.PushBack(v)
	}
	var seen []string
	for v := range l.Values() {
		seen = append(seen, v)
		if a, ok := anchors[v]; ok {
			l.Remove(a)
		}
	}
	if !slices.Equal(seen, []string{"a", "c", "b", "d", "e"}) || l.Len() != 3 {
		t.Errorf("saw %q, %d are left", seen, l.Len())
	}
}
