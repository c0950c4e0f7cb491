package census

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestLeft waits for the kernel, which has freed more each time that somebody counts.
func TestLeft(t *testing.T) {
	for name, c := range map[string]struct {
		before int
		counts []int // the last one again and again
		last   int
	}{
		"there is nothing":        {0, []int{0}, 0},
		"all are freed at once":   {0, []int{900, 0}, 0},
		"they are freed slowly":   {0, []int{900, 900, 880, 850, 800, 795, 790, 300, 12}, 12},
		"those of others are few": {500, []int{900, 800, 600, 512}, 512},
		"others have them":        {0, []int{900, 600, 550}, 550},
		"there are more and more": {0, []int{900, 950, 1000, 1050}, 1050},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &machine{all: c.before}
			census := m.census()
			census.Begin()
			all := census.kind.All
			census.kind.All = func(most int) (int, error) {
				m.all = c.counts[0]
				c.counts = slices.Delete(c.counts, 0, min(1, len(c.counts)-1))
				return all(most)
			}
			began := time.Now()
			if census.Left(t.Context()); m.all != c.last {
				t.Errorf("%s: it waited until there were %d, want %d", name, m.all, c.last)
			}
			if took := time.Since(began); took > longestFreeing {
				t.Errorf("%s: it took %s", name, took)
			}
		})
	}
}

// TestLeftForEver: it does not wait for ever, neither for the kernel nor for a count.
func TestLeftForEver(t *testing.T) {
	for name, change := range map[string]func(m *machine){
		"there are always fewer": func(m *machine) { m.all -= 20 },
		"a count hangs":          func(*machine) { time.Sleep(time.Hour) },
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &machine{}
			census := m.census()
			census.kind.Countable = 1 << 20
			census.Begin()
			m.all = 1 << 20
			all := census.kind.All
			census.kind.All = func(most int) (int, error) { change(m); return all(most) }
			began := time.Now()
			census.Left(t.Context())
			if took := time.Since(began); took != longestFreeing {
				t.Errorf("%s: it took %s", name, took)
			}
			time.Sleep(2 * time.Hour) // the count ends
		})
	}
}
