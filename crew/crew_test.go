package crew

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// leave waits until the idle goroutines have ended: a test with one that never ends fails.
func leave() { time.Sleep(2 * patience) }

// name is the name of the calling goroutine in stack traces.
func name() string {
	trace, _, _ := bytes.Cut(debug.Stack(), []byte(" ["))
	return string(trace)
}

// TestReused: a function runs on the goroutine of the one before it, until that has waited too long.
func TestReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer leave()
		c := New(1)
		var first, last string
		for i := range 4 {
			c.Go(func() { last = name() })
			synctest.Wait()
			if i == 0 {
				first = last
			}
			if last == "" || last != first {
				t.Fatalf("function %d ran on %q, the first one on %q", i, last, first)
			}
		}
		leave()
		c.Go(func() { last = name() })
		synctest.Wait()
		if last == first {
			t.Error("an idle goroutine did not end")
		}
	})
}

// TestConcurrent: functions do not wait for each other, and goroutines beyond the limit do not wait
// for functions.
func TestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer leave()
		c := New(2)
		var all, ran sync.WaitGroup
		all.Add(5)
		for range 5 {
			ran.Add(1)
			c.Go(func() {
				defer ran.Done()
				all.Done()
				all.Wait()
			})
		}
		ran.Wait()
		synctest.Wait()
		if n := c.idle.Load(); n != 2 {
			t.Errorf("%d goroutines wait, not 2", n)
		}
	})
}

// TestEnded: a function that ends its goroutine does not end the Crew.
func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer leave()
		c := New(1)
		for range 3 {
			c.Go(runtime.Goexit)
			synctest.Wait()
		}
		ran := false
		c.Go(func() { ran = true })
		synctest.Wait()
		if !ran || c.idle.Load() != 1 {
			t.Errorf("ran %v, %d idle", ran, c.idle.Load())
		}
	})
}

// TestNil: a nil Crew runs functions.
func TestNil(t *testing.T) {
	var c *Crew
	done := make(chan struct{})
	c.Go(func() { close(done) })
	<-done
}
