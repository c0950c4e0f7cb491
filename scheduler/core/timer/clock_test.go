package timer

import (
	"math"
	"testing"
	"time"
)

// TestAwake has a clock lose time before and after its first use.
func TestAwake(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	c := Clock{Now: start}
	c.PutOff(time.Hour)
	if got := c.Awake(); got != 0 {
		t.Errorf("awake for %s at first", got)
	}
	c.Now = start.Add(10 * time.Second)
	c.PutOff(4 * time.Second)
	awake := c.Awake()
	if awake != 6*time.Second {
		t.Errorf("awake for %s of 10 s, of which 4 were lost", awake)
	}
	if got := c.When(awake); !got.Equal(c.Now) {
		t.Errorf("that is so at %s, now is %s", got, c.Now)
	}
	if got, want := c.When(After(awake, time.Minute)), c.Now.Add(time.Minute); !got.Equal(want) {
		t.Errorf("a minute later is %s, want %s", got, want)
	}
	c.PutOff(time.Minute)
	if got := c.Awake(); got != awake-time.Minute {
		t.Errorf("when more was lost than there was: %s", got)
	}
	if got := After(awake, math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("for ever ends after %s", got)
	}
	if got := After(-awake, math.MaxInt64); got != math.MaxInt64-awake {
		t.Errorf("for ever from before ends after %s", got)
	}
}
