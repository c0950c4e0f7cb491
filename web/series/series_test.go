package series

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

var (
	farm = Shape{Levels: []Level{{10 * time.Second, 360}, {time.Minute, 1440}, {10 * time.Minute, 2016}}, Figures: 2}
	day0 = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
)

// A model keeps every sample.
type model struct {
	at      []time.Time
	figures [][]float32
	latest  time.Time // including samples that were dropped when the clock was set back
}

func (m *model) add(at time.Time, figures []float32) {
	for len(m.at) > 0 && m.at[len(m.at)-1].After(at) { // the clock was set back
		m.at, m.figures = m.at[:len(m.at)-1], m.figures[:len(m.figures)-1]
	}
	m.at, m.figures = append(m.at, at), append(m.figures, figures)
	if at.After(m.latest) {
		m.latest = at
	}
}

// bins returns the same as Series.Bins, from the samples themselves.
func (m *model) bins(l Level, figures int, now time.Time, join int) []Bin {
	bins := make([]Bin, l.Bins/join)
	for i := range bins {
		bins[i].Sums, bins[i].Peaks = make([]float64, figures), make([]float64, figures)
	}
	if len(m.at) == 0 {
		return bins
	}
	step := l.Step * time.Duration(join)
	end := now.Truncate(step).Add(step)
	kept := m.latest.Truncate(l.Step).Add(l.Step - l.Span())
	for i := len(m.at) - 1; i >= 0 && !m.at[i].Before(kept); i-- {
		at := len(bins) - 1 - int(end.Add(-1).Sub(m.at[i])/step)
		if at < 0 || !m.at[i].Before(end) {
			continue
		}
		bins[at].Count++
		for f, value := range m.figures[i] {
			bins[at].Sums[f] += float64(value)
			bins[at].Peaks[f] = max(bins[at].Peaks[f], float64(value))
		}
	}
	return bins
}

// TestModel compares a Series with a model, for more than two weeks with gaps, restarts and a clock
// that is set back.
func TestModel(t *testing.T) {
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 1))
		s, m, now := New(farm), &model{}, day0
		for end := day0.Add(16 * 24 * time.Hour); now.Before(end); {
			switch random.IntN(2000) {
			case 0: // no samples for a while
				now = now.Add(time.Duration(random.Int64N(9*3600)) * time.Second)
			case 1: // a restart
				var err error
				if s, err = Decode(farm, s.Encode()); err != nil {
					t.Fatal(err)
				}
			case 2:
				if random.IntN(8) == 0 {
					now = now.Add(-time.Duration(random.Int64N(2*3600)) * time.Second)
					// Set the clock back only to the end of a bin. Otherwise the model would have
					// to know which samples share a bin with the new time.
					now = now.Truncate(10 * time.Minute).Add(10*time.Minute - time.Second)
				}
			case 3:
				if random.IntN(12) > 0 {
					break
				}
				compare(t, s, m, now)
			}
			x := []float32{float32(random.IntN(1000)), float32(random.IntN(3))}
			s.Add(now, x)
			m.add(now, x)
			now = now.Add(10 * time.Second)
		}
		compare(t, s, m, now)
		compare(t, s, m, now.Add(3*24*time.Hour))
		compare(t, s, m, now.Add(-time.Hour))
	}
}

func compare(t *testing.T, s *Series, m *model, now time.Time) {
	t.Helper()
	for level, l := range farm.Levels {
		for _, join := range []int{1, 4, 6} {
			got, want := s.Bins(level, now, join), m.bins(l, farm.Figures, now, join)
			for i := range want {
				if !reflect.DeepEqual(got[i], want[i]) {
					t.Fatalf("%s: level %d, joined %d, bin %d of %d: %+v, want %+v", now, level, join, i, len(want), got[i], want[i])
				}
			}
		}
	}
}

// TestClock has the clock jump further than the longest level.
func TestClock(t *testing.T) {
	s := New(farm)
	for _, at := range []time.Time{day0, day0.AddDate(50, 0, 0), day0, time.Unix(-1, 0), day0} {
		s.Add(at, []float32{3, 1})
		for level := range farm.Levels {
			bins := s.Bins(level, at, 1)
			known := slices.DeleteFunc(bins[:len(bins)-1], func(b Bin) bool { return b.Count == 0 })
			if last := bins[len(bins)-1]; last.Count != 1 || last.Mean(0) != 3 || len(known) > 0 {
				t.Errorf("%s, level %d: last %+v, before it %+v", at, level, last, known)
			}
		}
	}
	if empty := New(farm).Bins(0, day0, 1)[0]; empty.Count != 0 || empty.Mean(0) != 0 {
		t.Errorf("of nothing %+v is known", empty)
	}
}

// TestBounds fills every bin.
func TestBounds(t *testing.T) {
	s := New(farm)
	if got, most := len(s.Encode()), farm.MaxBytes(); got >= most {
		t.Errorf("%d bytes of nothing, at most %d", got, most)
	}
	for at := day0; at.Before(day0.Add(15 * 24 * time.Hour)); at = at.Add(10 * time.Second) {
		s.Add(at, []float32{1, 2})
	}
	if got := len(s.Encode()); got != farm.MaxBytes() {
		t.Errorf("%d bytes, want %d", got, farm.MaxBytes())
	}
	for range 1 << 17 {
		s.Add(day0.Add(16*24*time.Hour), []float32{1, 2})
	}
	bins := s.Bins(0, day0.Add(16*24*time.Hour), 1)
	if b := bins[len(bins)-1]; b.Count != 1<<16-1 || b.Mean(1) != 2 {
		t.Errorf("too many samples: %+v", b)
	}
}

// TestDamage changes each byte of an encoding, and truncates it at each byte.
func TestDamage(t *testing.T) {
	small := Shape{Levels: []Level{{time.Minute, 3}}, Figures: 1}
	s, l := New(small), NewLines(small, 2, time.Hour)
	s.Add(day0, []float32{5})
	l.Add(day0, []Sample{{"a", []float32{5}}})
	decodeLines := func(data []byte) error { return NewLines(small, 2, time.Hour).Decode(data) }
	decode := func(data []byte) error { _, err := Decode(small, data); return err }
	for what, c := range map[string]struct {
		data   []byte
		decode func([]byte) error
	}{"series": {s.Encode(), decode}, "lines": {l.Encode(), decodeLines}} {
		if err := c.decode(c.data); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for i := range c.data {
			bad := slices.Clone(c.data)
			bad[i] ^= 4
			if c.decode(bad) == nil || c.decode(c.data[:i]) == nil {
				t.Errorf("%s: damage at %d is not noticed", what, i)
			}
			// Anyone who can write to the store can also compute a checksum, so decoding must not
			// panic.
			_, _ = c.decode(seal(bad[:i])), c.decode(seal(slices.Clone(bad[:len(bad)-4])))
		}
		if c.decode(seal(append(slices.Clone(c.data[:len(c.data)-4]), 0))) == nil {
			t.Errorf("%s: surplus data is not noticed", what)
		}
	}
	if _, err := Decode(farm, s.Encode()); err == nil {
		t.Error("another shape is taken")
	}
	if err := NewLines(small, 0, time.Hour).Decode(l.Encode()); err == nil {
		t.Error("more lines than there may be are taken")
	}
}

func TestLines(t *testing.T) {
	shape := Shape{Levels: []Level{{time.Minute, 60}}, Figures: 1}
	l := NewLines(shape, 2, 24*time.Hour)
	at := day0
	add := func(names ...string) {
		var all []Sample
		for _, name := range names {
			all = append(all, Sample{name, []float32{1}})
		}
		l.Add(at, all)
		at = at.Add(time.Minute)
	}
	expect := func(what string, names ...string) {
		t.Helper()
		for _, name := range []string{"a", "b", "c", "d"} {
			if has := l.Bins(name, 0, at) != nil; has != slices.Contains(names, name) {
				t.Errorf("%s: %s has a line: %t", what, name, has)
			}
		}
	}
	add("c", "a", "a")
	expect("the first", "a", "c")
	add("d", "b", "a", "c")
	expect("the first names keep their lines", "a", "c")
	add("d", "c")
	expect("an absent name loses its line", "c", "d")
	encoded := l.Encode()
	if len(encoded) > shape.LinesMaxBytes(2) {
		t.Errorf("%d bytes, at most %d", len(encoded), shape.LinesMaxBytes(2))
	}
	l = NewLines(shape, 2, 24*time.Hour)
	if err := l.Decode(encoded); err != nil {
		t.Fatal(err)
	}
	expect("after a restart", "c", "d")
	at = at.Add(12 * time.Hour)
	add("c")
	expect("away for half a day", "c", "d")
	at = at.Add(13 * time.Hour)
	add("c")
	expect("away for a day", "c")
	at = at.Add(-20 * 24 * time.Hour)
	add("d", "a")
	expect("the clock was set back", "c", "d")
	add("d", "a")
	expect("a name of a future sample counts as absent now", "a", "d")
	bins := l.Bins("d", 0, at.Add(-time.Minute))
	if last := bins[len(bins)-1]; last.Count != 1 || bins[len(bins)-2].Count != 1 || bins[len(bins)-3].Count != 0 {
		t.Errorf("bins %+v", bins[len(bins)-3:])
	}
}
