package fuse

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestStallClock(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		waits [][2]time.Duration // from, to
		ends  []time.Duration    // the arguments of onEnd
		at    map[time.Duration]time.Duration
	}{
		"none":        {nil, nil, map[time.Duration]time.Duration{5 * s: 0}},
		"one":         {[][2]time.Duration{{1 * s, 3 * s}}, []time.Duration{2 * s}, map[time.Duration]time.Duration{1 * s: 0, 2 * s: s, 9 * s: 2 * s}},
		"apart":       {[][2]time.Duration{{1 * s, 2 * s}, {4 * s, 7 * s}}, []time.Duration{s, 3 * s}, map[time.Duration]time.Duration{3 * s: s, 5 * s: 2 * s, 9 * s: 4 * s}},
		"overlapping": {[][2]time.Duration{{1 * s, 4 * s}, {2 * s, 6 * s}}, []time.Duration{5 * s}, map[time.Duration]time.Duration{3 * s: 2 * s, 5 * s: 4 * s, 9 * s: 5 * s}},
		"within":      {[][2]time.Duration{{1 * s, 8 * s}, {2 * s, 3 * s}}, []time.Duration{7 * s}, map[time.Duration]time.Duration{5 * s: 4 * s, 9 * s: 7 * s}},
		"no time":     {[][2]time.Duration{{1 * s, 1 * s}}, []time.Duration{0}, map[time.Duration]time.Duration{9 * s: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := make(chan time.Duration, 10)
				clock := stallClock{onEnd: func(d time.Duration) { told <- d }}
				for _, w := range c.waits {
					time.AfterFunc(w[0], func() {
						clock.begin()
						time.Sleep(w[1] - w[0])
						clock.end()
					})
				}
				for at, want := range c.at {
					time.AfterFunc(at, func() {
						if got := clock.total(); got != want {
							t.Errorf("after %s: %s, want %s", at, got, want)
						}
					})
				}
				time.Sleep(10 * s)
				synctest.Wait()
				close(told)
				var ends []time.Duration
				for d := range told {
					ends = append(ends, d)
				}
				if !slices.Equal(ends, c.ends) {
					t.Errorf("told of %v, want %v", ends, c.ends)
				}
			})
		})
	}
}
