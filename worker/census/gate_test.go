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
		var closing <-chan struct{}
		for range 2 {
			var err error
			if closing, err = g.Enter(ctx); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-closing:
			t.Error("commands are stopped though nothing wants to run alone")
		default:
		}
		alone, end := false, make(chan struct{})
		go g.Alone(ctx, func() { alone = true; <-end })
		synctest.Wait()
		select {
		case <-closing:
		default:
			t.Error("commands are not stopped")
		}
		g.Alone(ctx, func() { t.Error("two functions run alone") })
		entered := make(chan error, 1)
		go func() { _, err := g.Enter(ctx); entered <- err }()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := g.Enter(short); err == nil {
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
		// No command leaves in time.
		short, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
		g.Alone(short, func() { t.Error("it does not wait") })
		g.Leave()
		g.Alone(ctx, func() { alone = false })
		closing, err := g.Enter(ctx)
		if alone || err != nil {
			t.Error("the gate stays closed")
		}
		select {
		case <-closing:
			t.Error("a command is stopped for what ran alone before")
		default:
		}
	})
}
