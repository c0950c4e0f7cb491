package fair

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A queueModel knows only the promises of the fair rule: which branches have no running items, and
// how many turns each sibling has had since then.
type queueModel struct {
	t       *testing.T
	tree    *Tree
	queued  map[spot]int
	running map[string]int
	// turns counts the turns of siblings since a branch has been waiting without running items.
	turns map[spot]map[string]int
	// last is the cost of the branch's last start, divided by the weight of the branch.
	last    map[string]float64
	weights map[string]float64
	// slack is for sums that should be equal: below zero, one turn each means one.
	slack float64
}

// A spot is a branch, as text, in a kind.
type spot struct {
	path string
	kind uint32
}

// prefixes returns the branches above a leaf, the outermost first.
func prefixes(path []string) (all []string) {
	at := ""
	for _, key := range path {
		at += "/" + key
		all = append(all, at)
	}
	return all
}

func (r *queueModel) weight(branch string) float64 {
	if w, ok := r.weights[keyOf(branch)]; ok {
		return w
	}
	return 1
}

// enters adds a waiting item.
func (r *queueModel) enters(path []string, kind uint32) {
	for _, b := range prefixes(path) {
		s := spot{b, kind}
		if r.queued[s]++; r.queued[s] == 1 {
			delete(r.turns, s)
		}
	}
}

// starts takes a turn, and fails the test if another branch has waited for too long.
func (r *queueModel) starts(path []string, kind uint32, cost int64) {
	for _, b := range prefixes(path) {
		own := float64(cost) / r.weight(b)
		for s := range r.queued {
			if s.path == b || s.kind != kind || parentOf(s.path) != parentOf(b) || r.queued[s] == 0 || r.running[s.path] > 0 {
				continue
			}
			if r.turns[s] == nil {
				r.turns[s] = map[string]int{}
			}
			before := float64(r.turns[s][b]) / r.weight(b)
			if r.turns[s][b]++; before > 0 && before > max(r.last[s.path], 1/r.weight(s.path))+r.slack {
				r.t.Fatalf("%s, kind %d, has nothing running and waits, and %s had %d turns: its own last one came to %v",
					s.path, kind, b, r.turns[s][b], r.last[s.path])
			}
		}
		s := spot{b, kind}
		r.queued[s]--
		r.running[b]++
		r.last[b] = own
		for k := range uint32(3) {
			delete(r.turns, spot{b, k})
		}
	}
}

func (r *queueModel) ends(path []string) {
	for _, b := range prefixes(path) {
		if r.running[b]--; r.running[b] == 0 {
			for k := range uint32(3) {
				delete(r.turns, spot{b, k})
			}
		}
	}
}

// TestNobodyStarves has work of all priorities come to few workers and many. While a branch waits
// that has nothing running each sibling has one turn, or where weights or costs differ as many as
// the last turn of the branch was worth of them.
func TestNobodyStarves(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			levels := []Level{{}, {}}[:1+random.IntN(2)]
			costs := 1
			weights := map[string]float64{}
			if seed%3 == 1 {
				weights["a"], weights["b"] = 3, 0.25
				costs = 4
			}
			for i := range levels {
				levels[i].Weights = weights
			}
			r := &queueModel{
				t: t, tree: New(Options{Levels: levels}), queued: map[spot]int{}, running: map[string]int{},
				turns: map[spot]map[string]int{}, last: map[string]float64{}, weights: weights, slack: -1e-6,
			}
			if costs > 1 {
				r.slack = 1e-6
			}
			r.live(random, int64(costs))
		})
	}
}

// A job is one piece of work, with its only entry.
type job struct {
	Item
	Entry
	path []string
}

func (r *queueModel) live(random *rand.Rand, costs int64) {
	workers := make([]*Worker, 1+random.IntN(6))
	for i := range workers {
		workers[i] = &Worker{Kind: uint32(1 + random.IntN(2))}
	}
	busy := map[*Worker]*job{}
	age := uint64(0)
	submit := func() {
		age++
		j := &job{}
		j.Owner = j
		for range r.tree.levels {
			j.path = append(j.path, string(rune('a'+random.IntN(5))))
		}
		kind := uint32(1 + random.IntN(2))
		priorities := []int32{0, 0, 0, 100, -100, 1000, -1000, 1 << 30, -1 << 31}
		r.tree.Attach(&j.Entry, &j.Item, j.path, Rank{Priority: priorities[random.IntN(len(priorities))], Age: age})
		r.enters(j.path, kind)
		r.tree.Enqueue(&j.Item, kind, false)
	}
	for range 3000 {
		w := workers[random.IntN(len(workers))]
		if random.IntN(200) == 0 { // few of many end, so that a branch with many running items comes to have few
			workers = workers[:1+random.IntN(len(workers))]
		} else if random.IntN(200) == 0 {
			workers = append(workers, &Worker{Kind: uint32(1 + random.IntN(2))})
		}
		switch random.IntN(4) {
		case 0, 1:
			submit()
		case 2, 3:
			if j := busy[w]; j != nil {
				r.tree.Finish(&j.Item)
				r.ends(j.path)
				r.tree.Detach(&j.Entry)
				delete(busy, w)
			}
			if it := r.tree.Next(w, time.Time{}); it != nil {
				j, cost := it.Owner.(*job), 1+random.Int64N(costs)
				r.starts(j.path, w.Kind, cost)
				r.tree.Start(it, w, time.Time{}, cost)
				busy[w] = j
			}
		}
	}
}
