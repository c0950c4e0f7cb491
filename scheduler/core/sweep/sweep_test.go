package sweep

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

type item struct {
	Link[*item]
	number int
}

// TestLine compares a line with a slice.
func TestLine(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var l Line[*item]
	var want []*item
	for i := range 1000 {
		if at := random.IntN(20); at < len(want) {
			l.Remove(want[at])
			want = slices.Delete(want, at, at+1)
		} else {
			one := &item{number: i}
			l.Push(one, time.Duration(i)-time.Duration(random.IntN(5)))
			want = append(want, one)
		}
		if problem := l.Check(); problem != "" || !slices.Equal(l.All(), want) || l.Len() != len(want) {
			t.Fatalf("%v, want %v; %s", l.All(), want, problem)
		}
		if len(want) > 0 && l.First() != want[0] {
			t.Fatalf("%d is first", l.First().number)
		}
	}
	want[0].Link.number++
	if l.Check() == "" {
		t.Error("a wrong count passes")
	}
}

// TestPasses goes through a line in parts, while items come and go and one more pass is asked for.
func TestPasses(t *testing.T) {
	var l, other Line[*item]
	var ps Passes[*item]
	var items []*item
	for i := range 10 {
		items = append(items, &item{number: i})
		l.Push(items[i], 0)
	}
	seen := make([]int, 11)
	goOn := func(effort int) {
		ps.GoOn(&Effort{Left: effort}, func(x *Line[*item]) {
			x.Look(&Effort{Left: effort}, 1, func(i *item) bool { seen[i.number]++; return true })
			ps.GoOn(&Effort{Left: 1}, func(*Line[*item]) { t.Error("a pass goes on within itself") })
		})
	}
	ps.Start(&other)
	if ps.IsBehind() {
		t.Error("an empty line is gone through")
	}
	ps.Start(&l)
	e := Effort{Left: 4}
	ps.GoOn(&e, func(x *Line[*item]) {
		found := x.Look(&e, 2, func(i *item) bool { seen[i.number]++; return i.number == 0 })
		if len(found) != 1 || found[0] != items[1] || e.Left > 0 {
			t.Errorf("found %v, left %d", found, e.Left)
		}
	})
	if !l.IsSwept() || !ps.IsBehind() || len(ps.Ended()) > 0 || len(ps.Lines()) != 1 {
		t.Fatal("the pass is over, and has looked at two items")
	}
	l.Remove(items[2]) // where it is
	l.Remove(items[5])
	items = append(items, &item{number: 10})
	l.Push(items[10], 0)
	goOn(100)
	if want := []int{1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1}; !slices.Equal(seen, want) || ps.IsBehind() || l.IsSwept() {
		t.Errorf("looked at %v, want %v", seen, want)
	}
	if ended := ps.Ended(); len(ended) != 1 || ended[0] != &l || len(ps.Ended()) > 0 {
		t.Errorf("passes have ended through %v", ended)
	}
	clear(seen)
	ps.Start(&l)
	ps.Start(&l) // once more, after this one
	goOn(100)
	if want := []int{2, 2, 0, 2, 2, 0, 2, 2, 2, 2, 2}; !slices.Equal(seen, want) {
		t.Errorf("looked at %v, want %v", seen, want)
	}
}

func TestEffort(t *testing.T) {
	e := Effort{Left: 2}
	if !e.Spend(1) || !e.Spend(5) || e.Spend(1) {
		t.Errorf("there is still an effort of %d", e.Left)
	}
}
