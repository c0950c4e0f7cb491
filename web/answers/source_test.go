package answers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestFrugality counts the calls to a scheduler that answers slowly.
func TestFrugality(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		calls := 0
		cost := 10 * time.Millisecond
		get := func(key string) {
			_, err := Get(t.Context(), s, key, func(context.Context) (int, error) {
				calls++
				time.Sleep(cost)
				return calls, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		start := time.Now()
		get("a")
		get("a") // answered from memory
		if took := time.Since(start); calls != 1 || took != cost {
			t.Errorf("%d calls in %s", calls, took)
		}
		get("b")
		if took := time.Since(start); calls != 2 || took != (1+pauseFactor+1)*cost {
			t.Errorf("%d calls in %s", calls, took)
		}
		time.Sleep(fresh)
		get("a") // too old to be used again
		if calls != 3 {
			t.Errorf("%d calls", calls)
		}
		s.Forget()
		get("a")
		if calls != 4 {
			t.Errorf("%d calls", calls)
		}
		time.Sleep(fresh)
		cost = time.Second
		start = time.Now()
		get("c")
		get("d")
		if took := time.Since(start); calls != 6 || took != cost+maxPause+cost {
			t.Errorf("%d calls in %s", calls, took)
		}
	})
}
