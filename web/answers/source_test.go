package answers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestFrugality has a scheduler that needs a while for each answer.
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
		get("a") // is known
		if took := time.Since(start); calls != 1 || took != cost {
			t.Errorf("%d calls in %s", calls, took)
		}
		get("b")
		if took := time.Since(start); calls != 2 || took != (1+frugality+1)*cost {
			t.Errorf("%d calls in %s", calls, took)
		}
		time.Sleep(fresh)
		get("a") // is too old by now
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
		if took := time.Since(start); calls != 6 || took != cost+maxRest+cost {
			t.Errorf("%d calls in %s", calls, took)
		}
	})
}
