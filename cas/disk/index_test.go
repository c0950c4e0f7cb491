package disk

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// storeModel says in the plainest way what an index has to do: keys in the order
// of their last use, and the first that has no pin goes.
type storeModel struct {
	max, reserved int64
	order         []byte // present keys, used last at the end
	cost          map[byte]int64
	pins          map[byte]int
	arriving      map[byte]int64
	leaving       map[byte]bool
}

func (m *storeModel) present() (all, idle int64) {
	for _, k := range m.order {
		all += m.cost[k]
		if m.pins[k] == 0 {
			idle += m.cost[k]
		}
	}
	return all, idle
}

func (m *storeModel) remove(k byte) bool {
	i := slices.Index(m.order, k)
	if i >= 0 {
		m.order = slices.Delete(m.order, i, i+1)
	}
	return i >= 0
}

func (m *storeModel) touch(k byte) bool {
	there := m.remove(k)
	if there {
		m.order = append(m.order, k)
	}
	return there
}

func (m *storeModel) evict(cost int64) (victims []byte) {
	for _, k := range slices.Clone(m.order) {
		if cost > 0 && m.pins[k] == 0 {
			cost -= m.cost[k]
			m.remove(k)
			m.leaving[k] = true
			victims = append(victims, k)
		}
	}
	return victims
}

func (m *storeModel) reserve(cost int64) ([]byte, bool) {
	all, idle := m.present()
	over := all + m.reserved + cost - m.max
	if cost > m.max || over > idle {
		return nil, false
	}
	m.reserved += cost
	return m.evict(over), true
}

// numbered returns a key that differs from those of other numbers.
func numbered[N byte | int](k N) digest.Digest {
	d, err := digest.FromHash(digest.SHA256, [digest.HashSize]byte{}, int64(k))
	if err != nil {
		panic(err) // the size is that of a blob
	}
	return d
}

// storeHistory plays one history, a step per two bytes, on an index and the model.
func storeHistory(t *testing.T, history []byte) {
	t.Helper()
	x := newIndex(20, 0)
	m := &storeModel{
		max: 20, cost: map[byte]int64{}, pins: map[byte]int{},
		arriving: map[byte]int64{}, leaving: map[byte]bool{},
	}
	for step := 0; step+1 < len(history); step += 2 {
		k, arg := history[step]%8, history[step+1]
		storeStep(t, x, m, k, arg%8, int64(arg/8)%24)
		all, idle := m.present()
		if x.present != all || x.pinned != all-idle || x.reserved != m.reserved ||
			x.count != int64(len(m.order)) || all+m.reserved > m.max {
			t.Fatalf("step %d: index %d present, %d pinned, %d reserved, %d entries; model %d, %d, %d, %d",
				step, x.present, x.pinned, x.reserved, x.count, all, all-idle, m.reserved, len(m.order))
		}
		for k := range byte(8) {
			if (x.lookup(numbered(k)) != nil) != slices.Contains(m.order, k) {
				t.Fatalf("step %d: key %d is there: %t", step, k, x.lookup(numbered(k)) != nil)
			}
		}
	}
}

func storeStep(t *testing.T, x *index, m *storeModel, k, op byte, cost int64) {
	t.Helper()
	key := numbered(k)
	switch op {
	case 0: // a file begins to arrive
		victims, ok := x.reserve(cost + 1)
		want, wantOK := m.reserve(cost + 1)
		if ok != wantOK || !slices.EqualFunc(victims, want, func(d digest.Digest, k byte) bool { return d == numbered(k) }) {
			t.Fatalf("reserve %d: %v, %t; want %v, %t", cost+1, victims, ok, want, wantOK)
		}
		if !ok {
			return
		}
		wait, exists := x.admit(key)
		busy := m.leaving[k] || m.arriving[k] > 0
		if (wait != nil) != busy || exists != slices.Contains(m.order, k) {
			t.Fatalf("admit %d: wait %t, exists %t", k, wait != nil, exists)
		}
		if wait != nil || exists {
			x.release(cost + 1)
			m.reserved -= cost + 1
			return
		}
		m.arriving[k] = cost + 1
	case 1, 2: // it has arrived, or will not
		arriving := m.arriving[k]
		if arriving == 0 {
			return
		}
		delete(m.arriving, k)
		m.reserved -= arriving
		if op == 1 {
			x.finish(key, arriving, 0)
			m.cost[k] = arriving
			m.order = append(m.order, k)
			return
		}
		x.abort(key)
		x.release(arriving)
	case 3:
		if m.leaving[k] {
			delete(m.leaving, k)
			x.gone(key)
		}
	case 4:
		if hit, _ := x.use(key, 0); hit != m.touch(k) {
			t.Fatalf("use %d: %t", k, hit)
		}
	case 5:
		there := slices.Contains(m.order, k)
		if x.pin(key) != there {
			t.Fatalf("pin %d: %t", k, !there)
		}
		if there {
			m.pins[k]++
		}
	case 6:
		if m.pins[k] == 0 {
			return
		}
		x.unpin(key)
		if m.pins[k]--; m.pins[k] == 0 {
			m.touch(k)
		}
	case 7:
		dropped := m.remove(k)
		if x.drop(key) != dropped {
			t.Fatalf("drop %d: %t", k, !dropped)
		}
		m.leaving[k] = m.leaving[k] || dropped
	}
}

func TestStoreIndexBehavesLikeItsModel(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		history := make([]byte, 1000)
		for i := range history {
			history[i] = byte(random.Uint32())
		}
		storeHistory(t, history)
	}
}

func FuzzStoreIndex(f *testing.F) {
	f.Add([]byte{1, 0, 1, 1, 1, 5, 2, 8 * 19, 2, 1, 1, 7, 1, 6, 1, 3})
	f.Fuzz(storeHistory)
}

func TestStoreIndexForgetsWhatIsGone(t *testing.T) {
	x := newIndex(10, 0)
	for k := range byte(100) {
		victims, ok := x.reserve(3)
		if !ok {
			t.Fatal("no room")
		}
		for _, v := range victims {
			x.gone(v)
		}
		x.admit(numbered(k))
		x.finish(numbered(k), 3, 0)
	}
	if len(x.entries) != 3 || x.evicted != 97 || x.evictedCost != 3*97 {
		t.Errorf("%d entries, %d evicted of cost %d", len(x.entries), x.evicted, x.evictedCost)
	}
}

func TestStoreIndexAsksForAStampOnceAnHour(t *testing.T) {
	x := newIndex(10, 0)
	x.load(numbered(1), 1, 0)
	var stamps []int64
	for now := int64(0); now < 4*stampEvery; now += 100 {
		if _, stamp := x.use(numbered(1), now); stamp {
			stamps = append(stamps, now)
		}
	}
	if want := []int64{3600, 7200, 10800}; !slices.Equal(stamps, want) {
		t.Errorf("stamps at %v, want %v", stamps, want)
	}
}

func TestStoreIndexRefusesWhatCannotFit(t *testing.T) {
	for _, cost := range []int64{11, 1 << 40, 1<<63 - 1} {
		x := newIndex(10, 0)
		x.load(numbered(1), 10, 0)
		if _, ok := x.reserve(cost); ok || x.lookup(numbered(1)) == nil {
			t.Errorf("reserve %d: %t, evicted in vain: %t", cost, ok, x.lookup(numbered(1)) == nil)
		}
	}
}
