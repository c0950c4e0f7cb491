package runner

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := 7 * time.Hour // of an earlier time
		c := newClock(&Command{Timeout: 10 * time.Second, Stalled: func() time.Duration { return stalled }})
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
	c := newClock(&Command{})
	if c.timer() != nil {
		t.Error("there is a timer")
	}
}

// TestClockStandsStillForSoLong has storage that never answers.
func TestClockStandsStillForSoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := newClock(&Command{
			Timeout: 10 * time.Second, MaxStalled: time.Minute,
			Stalled: func() time.Duration { return time.Since(start) },
		})
		time.Sleep(time.Minute)
		if got := c.left(); got != 10*time.Second {
			t.Errorf("left %v after a minute without storage", got)
		}
		time.Sleep(4 * time.Second)
		if got := c.left(); got != 6*time.Second {
			t.Errorf("left %v four seconds later", got)
		}
	})
}
