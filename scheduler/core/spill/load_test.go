package spill

import (
	"testing"
	"time"
)

func TestWaitIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		load    Load
		workers int
		want    time.Duration
	}{
		"shared":       {Load{Known: time.Hour, Unknown: 1, Typical: 30 * time.Minute}, 4, 30 * time.Minute},
		"no worker":    {Load{Known: time.Hour}, 0, time.Hour},
		"a million":    {Load{Unknown: 1_000_000, Typical: 3 * time.Hour}, 1, longest},
		"a clock back": {Load{Unknown: 3, Typical: -time.Hour}, 1, 0},
	} {
		if got := test.load.Wait(test.workers); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
