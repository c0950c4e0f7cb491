package runner

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := 7 * time.Hour // of an earlier time
		c := newClock(10*time.Second, func() time.Duration { return stalled })
		wantLeft := func(want time.Duration) {
			t.Helper()
			if got := c.left(); got != want {
				t.Errorf("left %v, want %v", got, want)
			}
		}
		wantLeft(10 * time.Second)
		time.Sleep(4 * time.Second)
		wantLeft(6 * time.Second)
		stalled += 3 * time.Second // of those four
		wantLeft(9 * time.Second)
		time.Sleep(time.Minute)
		stalled += time.Minute
		wantLeft(9 * time.Second)
		<-c.timer()
		wantLeft(0)
		time.Sleep(time.Second)
		wantLeft(0)
	})
}

func TestClockWithoutTimeout(t *testing.T) {
	c := newClock(0, nil)
	if c.timer() != nil {
		t.Error("there is a timer")
	}
}
