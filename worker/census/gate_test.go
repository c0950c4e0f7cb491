package census

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestGate: a function that runs alone waits for the commands inside, and those outside wait for
// it.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		ctx := t.Context()
		for range 2 {
			if err := g.Enter(ctx); err != nil {
				t.Fatal(err)
			}
		}
		alone, end := false, make(chan struct{})
		go g.Alone(ctx, func() { alone = true; <-end })
		synctest.Wait()
		g.Alone(ctx, func() { t.Error("two functions run alone") })
		entered := make(chan error, 1)
		go func() { entered <- g.Enter(ctx) }()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := g.Enter(short); err == nil {
			t.Error("a command enters through a closed gate")
		}
		g.Leave()
		synctest.Wait()
		if alone {
			t.Error("it does not wait for the last command inside")
		}
		g.Leave()
		synctest.Wait()
		if !alone || len(entered) > 0 {
			t.Errorf("it runs: %v; %d commands run beside it", alone, len(entered))
		}
		close(end)
		if err := <-entered; err != nil {
			t.Error(err)
		}
		// Nobody leaves in time.
		short, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
		g.Alone(short, func() { t.Error("it does not wait") })
		g.Leave()
		g.Alone(ctx, func() { alone = false })
		if alone || g.Enter(ctx) != nil {
			t.Error("the gate stays closed")
		}
	})
}
