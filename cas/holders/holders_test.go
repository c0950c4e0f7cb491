package holders

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// A model has the holders of each blob in the simplest form.
type model map[digest.Digest]map[Name]bool

func (m model) gain(d digest.Digest, n Name) {
	if m[d] == nil {
		m[d] = map[Name]bool{}
	}
	m[d][n] = true
}

func (m model) lose(d digest.Digest) { delete(m, d) }

func (m model) equal(o model) bool {
	return maps.EqualFunc(m, o, func(a, b map[Name]bool) bool { return maps.Equal(a, b) })
}

func blob(i int) digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, i)) }

func name(i int) Name { return NameOf(fmt.Sprint("instance", i)) }

// TestTable does many things to a Table and a model, and compares them.
func TestTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var table Table
	sets, want := map[digest.Digest]*Set{}, model{}
	for step := range 20_000 {
		d, n := blob(random.IntN(30)), name(random.IntN(8))
		if random.IntN(5) == 0 {
			table.Drop(sets[d])
			delete(sets, d)
			want.lose(d)
		} else {
			s, added, err := table.Add(sets[d], n)
			if err != nil || added == want[d][n] {
				t.Fatalf("step %d: added %t, %v", step, added, err)
			}
			sets[d] = s
			want.gain(d, n)
		}
		for i := range 8 {
			if got := table.Has(sets[d], name(i)); got != want[d][name(i)] {
				t.Fatalf("step %d: %t of name %d", step, got, i)
			}
		}
	}
	got := model{}
	for d, s := range sets {
		for n := range table.Names(s) {
			got.gain(d, n)
		}
	}
	if !got.equal(want) {
		t.Error("the sets have other names than the model")
	}
	for _, s := range sets {
		table.Drop(s)
	}
	if len(table.ids) > 0 || len(table.sets) > 0 || len(table.free) != len(table.names) {
		t.Errorf("when nothing is left there are %d names, %d sets", len(table.ids), len(table.sets))
	}
}

// TestSetsAreShared: blobs with the same holders share one set, whatever the order in which the
// holders came.
func TestSetsAreShared(t *testing.T) {
	var table Table
	var sets [100]*Set
	for i := range sets {
		for k := range 3 {
			s, _, err := table.Add(sets[i], name((i+k)%3))
			if err != nil {
				t.Fatal(err)
			}
			sets[i] = s
		}
		if sets[i] != sets[0] {
			t.Fatalf("blob %d has a set of its own", i)
		}
	}
	if len(table.sets) != 1 {
		t.Errorf("%d sets", len(table.sets))
	}
}

func TestTooManyNames(t *testing.T) {
	table := Table{limit: 2}
	var s *Set
	for i := range 2 {
		s, _, _ = table.Add(s, name(i))
	}
	if same, added, err := table.Add(s, name(2)); !errors.Is(err, ErrTooManyNames) || added || same != s {
		t.Errorf("a third name: %v", err)
	}
	if _, _, err := table.Add(nil, name(1)); err != nil {
		t.Errorf("a name that is known: %v", err)
	}
	other, _, _ := table.Add(nil, name(0))
	table.Drop(other)
	table.Drop(s)
	if _, _, err := table.Add(nil, name(2)); err != nil {
		t.Errorf("a third name when the first has nothing any more: %v", err)
	}
}

// read returns what a file says.
func read(t *testing.T, b []byte) model {
	t.Helper()
	m := model{}
	if err := Read(bytes.NewReader(b), m.gain, m.lose); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestChanges writes what happens to a model, reads it, and cuts it short and damages it
// everywhere.
func TestChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var c Changes
	file, now := []byte(Heading), model{}
	states, ends := []model{{}}, []int{len(Heading)}
	for range 40 {
		for range random.IntN(5) {
			if d := blob(random.IntN(6)); random.IntN(3) == 0 {
				c.Lost(d)
				now.lose(d)
			} else {
				n := name(random.IntN(4))
				c.Gained(d, n)
				now.gain(d, n)
			}
		}
		file = append(file, c.Take()...)
		kept := model{}
		for d, ns := range now {
			kept[d] = maps.Clone(ns)
		}
		states, ends = append(states, kept), append(ends, len(file))
	}
	// before returns the last state that is whole in the first n bytes.
	before := func(n int) model {
		i, _ := slices.BinarySearch(ends, n+1)
		if i == 0 {
			return model{}
		}
		return states[i-1]
	}
	for n := range len(file) {
		if !read(t, file[:n]).equal(before(n)) {
			t.Fatalf("the first %d bytes say something else", n)
		}
		damaged := bytes.Clone(file)
		damaged[n] ^= 0x40
		if n < len(Heading) && len(read(t, damaged)) > 0 {
			t.Fatalf("a file that is none is believed")
		}
		if n >= len(Heading) && !read(t, damaged).equal(before(n)) {
			t.Fatalf("with byte %d damaged the file says something else", n)
		}
	}
	if !read(t, append(bytes.Clone(file), make([]byte, 100)...)).equal(now) {
		t.Error("zeros at the end change what the file says")
	}
}

// TestRestart begins a new file, whose names are in it.
func TestRestart(t *testing.T) {
	var c Changes
	c.Gained(blob(1), name(1))
	c.Take()
	c.Restart()
	c.Gained(blob(2), name(1))
	if got := read(t, append([]byte(Heading), c.Take()...)); !got.equal(model{blob(2): {name(1): true}}) {
		t.Errorf("%v", got)
	}
}

func FuzzRead(f *testing.F) {
	var c Changes
	c.Gained(blob(1), name(1))
	c.Lost(blob(1))
	f.Add(append([]byte(Heading), c.Take()...))
	f.Add([]byte(Heading))
	f.Fuzz(func(t *testing.T, b []byte) { _ = read(t, b) })
}

// TestFamilies has one customer make instance names below his own until he may have no more. Other
// customers must still be able to have names, also after he gave some back.
func TestFamilies(t *testing.T) {
	table := Table{limit: 6}
	var his []*Set
	below := func(i int) Name { return NameOf(fmt.Sprint("a/", i)) }
	for i := range 3 {
		s, _, err := table.Add(nil, below(i))
		if err != nil {
			t.Fatal(err)
		}
		his = append(his, s)
	}
	for _, n := range []Name{below(3), NameOf("a")} {
		if _, _, err := table.Add(nil, n); !errors.Is(err, ErrTooManyNames) {
			t.Errorf("one more of a family: %v", err)
		}
	}
	table.Drop(his[0])
	if _, _, err := table.Add(nil, NameOf("a")); err != nil {
		t.Errorf("in place of another: %v", err)
	}
	for _, n := range []string{"b", "ab", ""} {
		if _, _, err := table.Add(nil, NameOf(n)); err != nil {
			t.Errorf("%q, beside a full family: %v", n, err)
		}
	}
	if _, _, err := table.Add(nil, NameOf("c")); !errors.Is(err, ErrTooManyNames) {
		t.Errorf("one more: %v", err)
	}
}
