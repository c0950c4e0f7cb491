package fair

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestFindLooksInTheOrderOfTurns has what is found be what a worker would be given if nothing else
// waited.
func TestFindLooksInTheOrderOfTurns(t *testing.T) {
	now := time.Unix(0, 0)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		levels := make([]Level, seed%4)
		all, some := New(Options{Levels: levels}), New(Options{Levels: levels})
		fits := make([]bool, 12)
		for i := range fits {
			path := make([]string, len(levels))
			for l := range path {
				path[l] = fmt.Sprint(r.IntN(3))
			}
			fits[i] = r.IntN(3) == 0
			for _, tree := range []*Tree{all, some} {
				it := &Item{Owner: i}
				tree.Attach(&Entry{}, it, path, Rank{Age: uint64(i)})
				if tree == all || fits[i] {
					tree.Enqueue(it, 1, false)
				}
			}
		}
		want := some.Next(&Worker{Kind: 1}, now)
		got, _ := all.Find(1, Search{Fits: func(it *Item) bool { return fits[it.Owner.(int)] }})
		if (got == nil) != (want == nil) || got != nil && got.Owner != want.Owner {
			t.Fatalf("seed %d: found %+v, want %+v", seed, got, want)
		}
		if first, _ := all.Find(1, Search{}); first != all.Next(&Worker{Kind: 1}, now) {
			t.Fatalf("seed %d: the first of all is not what is next", seed)
		}
	}
}

// crowd has so many branches wait with an item each.
func crowd(branches int, avoids string) (*Tree, []Item) {
	tree := New(Options{Levels: []Level{{}}, Avoid: func(it *Item) string {
		if it.Owner.(int) < branches-1 {
			return avoids
		}
		return ""
	}})
	items := make([]Item, branches)
	for i := range items {
		items[i].Owner = i
		tree.Attach(&Entry{}, &items[i], []string{fmt.Sprint("branch", i)}, Rank{Age: uint64(i)})
		tree.Enqueue(&items[i], 1, false)
	}
	return tree, items
}

// TestFindIsBounded has many branches not be looked at for ever, nor many items of one leaf hide
// what others have.
func TestFindIsBounded(t *testing.T) {
	tree, _ := crowd(2*mostLooks, "")
	anyItem := func(*Item) bool { return true }
	find := func(kind uint32, branch int) (*Item, int) {
		return tree.Find(kind, Search{May: func(key string) bool { return key == fmt.Sprint("branch", branch) }, Fits: anyItem})
	}
	for _, want := range []int{0, 7, mostLooks - 3} {
		// It looks at the root, at each branch up to that one, and at the item there.
		if it, looks := find(1, want); it == nil || it.Owner != want || looks != want+3 {
			t.Errorf("found %+v by %d looks, want %d", it, looks, want)
		}
	}
	if it, looks := find(1, mostLooks); it != nil || looks != mostLooks {
		t.Errorf("found %+v by %d looks, beyond what is looked at", it, looks)
	}
	if it, looks := find(2, 0); it != nil || looks != 0 {
		t.Errorf("found %+v by %d looks in another kind", it, looks)
	}
	one := New(Options{Levels: []Level{{}}})
	crowd := make([]Item, 2*mostLooks+1)
	for i := range crowd {
		key := "crowd"
		if i == len(crowd)-1 {
			key = "last"
		}
		crowd[i].Owner = i
		one.Attach(&Entry{}, &crowd[i], []string{key}, Rank{Age: uint64(i)})
		one.Enqueue(&crowd[i], 1, false)
	}
	last := len(crowd) - 1
	if it, _ := one.Find(1, Search{Fits: func(it *Item) bool { return it.Owner == last }}); it == nil {
		t.Error("what waits in another branch is not found behind a long one")
	}
}

// TestFindPassesBranchesThatAvoid has a worker get what waits behind many branches that avoid it.
func TestFindPassesBranchesThatAvoid(t *testing.T) {
	const some, many = mostBranches - 1, 2 * mostBranches
	tree, items := crowd(some, "g")
	if it, looks := tree.Find(1, Search{For: "g"}); it != &items[some-1] || looks != mostBranches {
		t.Errorf("found %+v by %d looks", it, looks)
	}
	if it, looks := tree.FindOf(1, fmt.Sprint("branch", some-1), Search{For: "g"}); it != &items[some-1] || looks != 1 {
		t.Errorf("found %+v by %d looks in its branch", it, looks)
	}
	if it, looks := tree.FindOf(1, "branch0", Search{For: "g"}); it != nil || looks != 1 {
		t.Errorf("found %+v by %d looks where everything avoids it", it, looks)
	}
	if it, looks := tree.Find(1, Search{For: "h"}); it != &items[0] || looks != 2 {
		t.Errorf("found %+v by %d looks", it, looks)
	}
	tree, _ = crowd(many, "g")
	if it, looks := tree.Find(1, Search{For: "g"}); it != nil || looks != mostBranches {
		t.Errorf("found %+v by %d looks, beyond what is looked at", it, looks)
	}
}
