package fair

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// FuzzTree has a tree and a model live through the same history, and compares what
// they say and checks the tree after each step.
func FuzzTree(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomScript(seed, 400))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) <= 2000 {
			live(t, script)
		}
	})
}

// TestRandomHistories runs longer histories than the fuzzer starts with.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(10) {
		live(t, randomScript(seed+1000, 2000))
	}
}

func randomScript(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// A twin is one thing in the tree and in the model.
type (
	twinItem struct {
		*Item
		model *modelItem
	}
	twinEntry struct {
		*Entry
		model *modelEntry
		of    *twinItem
	}
	twinWorker struct {
		*Worker
		model *modelWorker
		runs  *twinItem
	}
)

type life struct {
	t      *testing.T
	script []byte
	now    time.Time
	tree   *Tree
	// changes has changed limits, which the tree learns when it is used.
	changes Changes
	model   *model

	items   []*twinItem
	entries []*twinEntry
	workers []*twinWorker
	age     uint64
}

// pick returns a number below n.
func (l *life) pick(n int) int {
	if len(l.script) == 0 {
		return 0
	}
	b := int(l.script[0])
	l.script = l.script[1:]
	return b % n
}

func live(t *testing.T, script []byte) {
	l := &life{t: t, script: script, now: time.Unix(1e9, 0)}
	levels := []Level{
		{Stickiness: 20 * time.Second, Weights: map[string]float64{"b": 3, "c": 0.25}},
		{Weights: map[string]float64{"a": 2}},
		{Stickiness: 7 * time.Second},
	}[:l.pick(4)]
	l.model = newModel(levels)
	if len(levels) > 0 && l.pick(2) == 1 {
		l.model.limit["a"], l.model.limit["b"], l.model.reserve["c"] = 4, 0, 5
	}
	l.tree = New(Options{Levels: levels, Admit: func(_ uint32, key string) Grade {
		// In the middle of a change the model's sum of running work is wrong.
		b := l.tree.root.children[key]
		if limit, ok := l.model.limit[key]; ok && b.running >= limit {
			return Wait
		}
		if b.running < l.model.reserve[key] {
			return First
		}
		return Share
	}, Changes: &l.changes, Avoid: func(it *Item) string { return it.Owner.(*twinItem).model.avoids }})
	for len(l.script) > 0 {
		l.step()
		l.model.settle()
		if l.pick(3) > 0 { // otherwise the tree learns it with the next use
			l.compare()
		}
	}
	l.finish()
}

func (l *life) step() {
	l.now = l.now.Add(time.Duration(l.pick(5)) * time.Second)
	switch l.pick(14) {
	case 0, 1, 2:
		l.submit()
	case 3:
		l.join()
	case 4:
		l.leave()
	case 5, 6, 7:
		l.next()
	case 8, 9:
		l.end()
	case 10, 11, 12:
		l.idle()
	case 13:
		l.rare()
	}
}

func (l *life) worker() *twinWorker {
	if i := l.pick(7); i < len(l.workers) {
		return l.workers[i]
	}
	kind := uint32(1 + l.pick(4)/3)
	s := &twinWorker{Worker: &Worker{Kind: kind}, model: &modelWorker{kind: kind}}
	s.Owner = s
	l.workers = append(l.workers, s)
	l.model.workers = append(l.model.workers, s.model)
	return s
}

func (l *life) item() *twinItem {
	if len(l.items) == 0 {
		return nil
	}
	return l.items[l.pick(len(l.items))]
}

// attach gives an item another entry.
func (l *life) attach(it *twinItem) {
	var path []string
	leaf := ""
	for range l.tree.levels {
		path = append(path, string(rune('a'+l.pick(4))))
		leaf += "/" + path[len(path)-1]
	}
	l.age++
	r := Rank{
		Priority: []int32{0, 0, 0, 100, -50, 1 << 30, -1 << 31}[l.pick(7)],
		Expected: time.Duration(l.pick(2)), Age: l.age,
	}
	e := &twinEntry{Entry: &Entry{}, model: &modelEntry{Rank: r, leaf: leaf}, of: it}
	l.entries = append(l.entries, e)
	l.tree.Attach(e.Entry, it.Item, path, r)
	l.model.join(e.model, it.model)
}

// submit has a new item wait, or be run at once by the nearest idle worker.
func (l *life) submit() {
	it := &twinItem{Item: &Item{}, model: &modelItem{}}
	it.Owner = it
	l.items = append(l.items, it)
	l.model.items = append(l.model.items, it.model)
	for range 1 + l.pick(5)/3 {
		l.attach(it)
	}
	l.enqueue(it, false)
}

func (l *life) enqueue(it *twinItem, returned bool) {
	kind := uint32(1 + l.pick(4)/3)
	it.model.avoids = []string{"", "", "g", "h"}[l.pick(4)]
	l.tree.Enqueue(it.Item, kind, returned)
	it.model.stage, it.model.kind = waiting, kind
	for _, e := range it.model.entries {
		e.returned = e.returned || returned
	}
	l.model.settle()
	worker, want := l.tree.Nearest(it.Item, kind), l.model.nearest(it.model, kind)
	if (worker == nil) != (want == nil) || worker != nil && worker.Owner.(*twinWorker).model != want {
		l.t.Fatalf("nearest is %+v, want %+v", worker, want)
	}
	if worker != nil {
		l.start(it, worker.Owner.(*twinWorker))
	}
}

func (l *life) start(it *twinItem, s *twinWorker) {
	if s.Waits() {
		l.tree.Unwait(s.Worker)
		l.model.unwait(s.model)
	}
	cost := int64(1 + l.pick(3))
	s.runs = it
	// Start in one step, in case Options.Admit is called.
	l.tree.Start(it.Item, s.Worker, l.now, cost)
	l.model.start(it.model, s.model, l.now, cost)
}

func (l *life) join() {
	if it := l.item(); it != nil {
		l.attach(it)
	}
}

// leave takes an entry away; an item without any goes.
func (l *life) leave() {
	if len(l.entries) == 0 {
		return
	}
	l.detach(l.entries[l.pick(len(l.entries))])
}

func (l *life) detach(e *twinEntry) {
	l.entries = slices.DeleteFunc(l.entries, func(x *twinEntry) bool { return x == e })
	l.tree.Detach(e.Entry)
	m := e.of.model
	m.entries = slices.DeleteFunc(m.entries, func(x *modelEntry) bool { return x == e.model })
	if len(m.entries) == 0 && m.stage != running {
		l.drop(e.of)
	}
}

// drop forgets an item that does not run.
func (l *life) drop(it *twinItem) {
	if it.Waits() {
		l.tree.Dequeue(it.Item)
	}
	it.model.stage = apart
	for _, e := range slices.Clone(l.entries) {
		if e.of == it {
			l.entries = slices.DeleteFunc(l.entries, func(x *twinEntry) bool { return x == e })
			l.tree.Detach(e.Entry)
		}
	}
	it.model.entries = nil
	l.items = slices.DeleteFunc(l.items, func(x *twinItem) bool { return x == it })
	l.model.items = slices.DeleteFunc(l.model.items, func(x *modelItem) bool { return x == it.model })
}

// next has a worker that is free start what is next.
func (l *life) next() {
	s := l.worker()
	if s.runs != nil || s.Waits() {
		return
	}
	it, want := l.tree.Next(s.Worker, l.now), l.model.next(s.model, l.now)
	if it == nil && want == nil {
		return
	}
	if it == nil || it.Owner.(*twinItem).model != want {
		l.t.Fatalf("next is %+v, want %+v", it, want)
	}
	l.start(it.Owner.(*twinItem), s)
}

// end ends what a worker runs: it is done, or it is lost and waits again.
func (l *life) end() {
	s := l.worker()
	it := s.runs
	if it == nil {
		return
	}
	s.runs = nil
	l.tree.Finish(it.Item)
	it.model.stage, it.model.worker = apart, nil
	if l.pick(3) > 0 || len(it.model.entries) == 0 {
		l.drop(it)
	} else {
		l.model.settle()
		l.enqueue(it, l.pick(2) == 0)
	}
}

// idle makes a free worker without an item wait.
func (l *life) idle() {
	s := l.worker()
	if s.runs == nil && !s.Waits() {
		l.tree.Wait(s.Worker)
		l.model.wait(s.model)
	}
}

func (l *life) rare() {
	switch s := l.worker(); l.pick(6) {
	case 0: // the worker goes
		if s.runs == nil {
			if s.Waits() {
				l.model.unwait(s.model)
			}
			l.tree.Leave(s.Worker)
			l.workers = slices.DeleteFunc(l.workers, func(x *twinWorker) bool { return x == s })
			l.model.workers = slices.DeleteFunc(l.model.workers, func(x *modelWorker) bool { return x == s.model })
		}
	case 1: // the worker brings an action: an unknown one, or a waiting one
		if it := l.item(); s.runs == nil && it != nil && it.Waits() {
			l.start(it, s)
		} else if s.runs == nil {
			it := &twinItem{Item: &Item{}, model: &modelItem{}}
			it.Owner = it
			l.items = append(l.items, it)
			l.model.items = append(l.model.items, it.model)
			l.start(it, s)
		}
	case 2: // an item waits for another kind of worker
		if it := l.item(); it != nil && it.Waits() {
			l.tree.Dequeue(it.Item)
			it.model.stage = apart
			l.model.settle()
			l.enqueue(it, false)
		}
	case 4, 5: // no client waits for an operation any more, or one does again
		if len(l.entries) > 0 {
			e := l.entries[l.pick(len(l.entries))]
			if e.model.parked = !e.model.parked; e.model.parked {
				l.tree.Park(e.Entry)
			} else {
				l.tree.Unpark(e.Entry)
			}
		}
	case 3: // a limit changes
		for _, key := range []string{"a", "b"} {
			if _, ok := l.model.limit[key]; ok {
				l.model.limit[key] = int64(l.pick(8))
				l.changes.Note(key)
			}
		}
	}
}

// compare compares tree and model for every worker, and checks the tree.
func (l *life) compare() {
	l.t.Helper()
	for _, s := range l.workers {
		it, want := l.tree.Next(s.Worker, l.now), l.model.next(s.model, l.now)
		if (it == nil) != (want == nil) || it != nil && it.Owner.(*twinItem).model != want {
			l.t.Fatalf("next is %+v, want %+v", it, want)
		}
		for _, group := range []string{"g", "h", "none"} {
			it, _ := l.tree.Find(s.Kind, Search{For: group})
			fits, _ := l.tree.Find(s.Kind, Search{For: group, Fits: func(*Item) bool { return true }})
			want := l.model.find("", s.Kind, group)
			if (it == nil) != (want == nil) || it != nil && it.Owner.(*twinItem).model != want || fits != it {
				l.t.Fatalf("found for %s: %+v, want %+v", group, it, want)
			}
		}
	}
	var entries []*Entry
	for _, e := range l.entries {
		entries = append(entries, e.Entry)
	}
	var workers []*Worker
	for _, s := range l.workers {
		workers = append(workers, s.Worker)
	}
	if problem := l.tree.check(entries, workers); problem != "" {
		l.t.Fatal(problem)
	}
	for kind := range uint32(3) {
		waiting := 0
		for _, it := range l.items {
			if it.Waits() && it.kind == kind && slices.ContainsFunc(it.model.entries, func(e *modelEntry) bool { return !e.parked }) {
				waiting++
			}
		}
		if n := len(items(l.tree, kind)); n != waiting {
			l.t.Fatalf("%d items in kind %d, want %d", n, kind, waiting)
		}
	}
}

// finish ends everything: nothing is left of the tree.
func (l *life) finish() {
	for _, s := range l.workers {
		if s.runs != nil {
			l.tree.Finish(s.runs.Item)
			s.runs.model.stage = apart
		}
		l.tree.Leave(s.Worker)
	}
	for len(l.items) > 0 {
		l.drop(l.items[0])
	}
	if r := l.tree.root; len(r.children)+len(r.backlogs)+r.refs > 0 {
		l.t.Fatalf("%d branches, %d backlogs and %d refs are left at the root", len(r.children), len(r.backlogs), r.refs)
	}
}

// items returns what waits in a kind and may have a turn, each item once, the oldest first.
func items(t *Tree, kind uint32) []*Item {
	var entries []*Entry
	if s := t.root.backlog(kind); s != nil {
		entries = s.all(nil)
	}
	slices.SortFunc(entries, func(a, b *Entry) int { return cmp.Compare(a.age, b.age) })
	items := make([]*Item, 0, len(entries))
	for _, e := range entries {
		first := e.item.entries.first
		for first.owner.parked {
			first = first.next
		}
		if first.owner == e {
			items = append(items, e.item)
		}
	}
	return items
}
