package core

import (
	"testing"
	"time"
)

func TestWaitIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		load    load
		workers int
		want    time.Duration
	}{
		"shared":       {load{known: time.Hour, unknown: 1, typical: 30 * time.Minute}, 4, 30 * time.Minute},
		"no worker":    {load{known: time.Hour}, 0, time.Hour},
		"a million":    {load{unknown: 1_000_000, typical: 3 * time.Hour}, 1, longestWait},
		"a clock back": {load{unknown: 3, typical: -time.Hour}, 1, 0},
	} {
		if got := test.load.wait(test.workers); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
