package census

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLeft stops a command when there are hidden objects, whose number changes with each count then.
func TestLeft(t *testing.T) {
	for name, c := range map[string]struct {
		counts    []int
		own, over bool
	}{
		"all are freed at once":      {[]int{0}, true, true},
		"they are freed slowly":      {[]int{900, 900, 880, 850, 800, 795, 790, 300, 120, 90}, true, true},
		"they come back":             {[]int{101, 850}, false, false},
		"many, but there are others": {[]int{700}, true, false},
		"few of many":                {[]int{860}, false, false},
		"there are more":             {[]int{950}, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &machine{}
			census := m.census()
			census.Begin()
			m.all = 900
			for !census.Found() {
				census.look(t, time.Second)
				time.Sleep(time.Second + 1)
			}
			all := census.kind.All
			census.kind.All = func(most int) (int, error) {
				m.all = c.counts[0]
				if len(c.counts) > 1 {
					c.counts = c.counts[1:]
				}
				return all(most)
			}
			began := time.Now()
			if own := census.Left(t.Context(), 900); own != c.own || census.Found() == c.over {
				t.Errorf("%s: own: %v, over: %v; want %v and %v", name, own, !census.Found(), c.own, c.over)
			}
			if took := time.Since(began); took > longestFreeing {
				t.Errorf("%s: it took %s", name, took)
			}
			if c.over && census.look(t, 0) != Innocent {
				t.Errorf("%s: it is found again", name)
			}
		})
	}
}
