package fair

import (
	"fmt"
	"slices"
	"testing"
)

// A market is many trees with the same branches, and counts how often they ask for grades.
type market struct {
	farms   []*farm
	changes Changes
	grades  map[string]Grade
	asked   int
}

// newMarket has something of each key wait in each tree.
func newMarket(trees int, keys ...string) *market {
	m := &market{grades: map[string]Grade{}}
	for range trees {
		f := newFarm(Options{
			Levels:  make([]Level, 1),
			Admit:   func(_ uint32, key string) Grade { m.asked++; return m.grades[key] },
			Changes: &m.changes,
		}, 0)
		for _, key := range keys {
			f.add(key, 0, 2)
		}
		m.farms = append(m.farms, f)
	}
	m.asked = 0
	return m
}

func (m *market) set(key string, g Grade) {
	m.grades[key] = g
	m.changes.Note(key)
}

// TestChangesOfManyTrees has a branch of many trees be held and released. Only the tree that is
// used asks for its grade, and once.
func TestChangesOfManyTrees(t *testing.T) {
	m := newMarket(1000, "a", "b")
	for range 3 {
		m.set("a", Share)
		m.set("a", Wait)
		m.set("b", Wait)
		m.set("a", First)
	}
	if m.asked > 0 {
		t.Errorf("grades were asked for %d times before a tree was used", m.asked)
	}
	f := m.farms[7]
	if got := f.work(&Worker{}, 1); got != "a" || m.asked > 3 {
		t.Errorf("started %q, asked %d times", got, m.asked)
	}
	m.asked = 0
	if f.tree.Next(&Worker{}, f.now); m.asked > 0 {
		t.Errorf("nothing has changed, asked %d times", m.asked)
	}
}

// TestEachUseLearnsChanges has a branch that was held be released before any use of its tree.
func TestEachUseLearnsChanges(t *testing.T) {
	for name, use := range map[string]func(*farm) bool{
		"next":    func(f *farm) bool { return f.tree.Next(&Worker{}, f.now) != nil },
		"next of": func(f *farm) bool { return f.tree.NextOf(&Worker{}, "a", f.now) != nil },
		"find": func(f *farm) bool {
			it, _ := f.tree.Find(0, Search{})
			return it != nil
		},
		"view": func(f *farm) (free bool) {
			for v := range f.tree.Branches(0) {
				free = free || v.Key == "a" && !v.Held
			}
			return free
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarket(1, "a")
			if use(m.farms[0]) {
				t.Error("a is held, and may run")
			}
			m.set("a", Share)
			if !use(m.farms[0]) {
				t.Error("a was released, and may not run")
			}
		})
	}
}

// TestChangesOfManyKeys has more keys change than a tree has branches: it asks for its own only. A
// key that is forgotten is no change.
func TestChangesOfManyKeys(t *testing.T) {
	m := newMarket(1, "a", "b", "forgotten")
	for i := range 1000 {
		m.set(fmt.Sprint("other", i), Share)
	}
	for _, key := range []string{"b", "forgotten"} {
		m.set(key, Share)
	}
	for i := range 1000 {
		m.set(fmt.Sprint("other", i), Wait)
	}
	m.changes.Forget("forgotten")
	m.changes.Forget("forgotten")
	f := m.farms[0]
	if it := f.tree.Next(&Worker{}, f.now); it == nil || m.asked != 1 || m.changes.Len() != 1001 {
		t.Errorf("next is %v, asked %d times, %d keys", it, m.asked, m.changes.Len())
	}
	var left []string
	for x := m.changes.order.first; x != nil; x = x.next {
		left = append(left, x.owner.key)
	}
	n := len(left)
	if n != 1001 || left[0] != "b" || left[n-1] != "other999" || slices.Contains(left, "forgotten") {
		t.Errorf("%d changes, from %s to %s", n, left[0], left[n-1])
	}
}
