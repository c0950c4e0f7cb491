package crew

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// leave waits until the idle goroutines have ended: a test with one that never ends fails.
func leave() { time.Sleep(2 * patience) }

// TestReused: a function runs on the goroutine of the one before it.
func TestReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer leave()
		c := New(1)
		before := runtime.NumGoroutine()
		for range 3 {
			ran := false
			c.Go(func() { ran = true })
			synctest.Wait()
			if !ran {
				t.Fatal("the function did not run")
			}
			if n := runtime.NumGoroutine() - before; n != 1 {
				t.Fatalf("%d goroutines, not 1", n)
			}
		}
	})
}

// TestConcurrent: functions do not wait for each other, and those beyond the limit end.
func TestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer leave()
		c := New(2)
		before := runtime.NumGoroutine()
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
		if n := runtime.NumGoroutine() - before; n != 2 {
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
