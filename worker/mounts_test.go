package worker

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWhoMounts has commands with many mounts, and with many threads that wait for mounts.
func TestWhoMounts(t *testing.T) {
	for name, c := range map[string]struct {
		fullest, waiting int
		seldom, stops    bool
	}{
		"few":                       {100, 3, true, false},
		"as many as there can be":   {mostMounts, mostMounting, true, false},
		"a full namespace":          {mostMounts + 1, 0, false, true},
		"many wait":                 {100, mostMounting + 1, true, true},
		"many wait, nobody asks it": {100, mostMounting + 1, false, false},
	} {
		of := func(n int) func([]int, int) int { return func(_ []int, most int) int { return min(n, most) } }
		m := mountWatch{fullest: of(c.fullest), waiting: of(c.waiting)}
		if !c.seldom {
			m.looks++
		}
		if found := m.look(nil); (found != nil) != c.stops || found != nil && !found.own {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestSlowLook has a look wait for the mounts of others: the next one asks who waits.
func TestSlowLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mountWatch{looks: 1, waiting: func(_ []int, most int) int { return most }, fullest: func([]int, int) int {
			time.Sleep(time.Second)
			return 1
		}}
		if found := m.look(nil); found != nil {
			t.Fatalf("nobody asks: %+v", found)
		}
		if found := m.look(nil); found == nil {
			t.Error("nobody asks who waits after a look that waited")
		}
	})
}
