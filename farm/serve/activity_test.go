package serve

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

const (
	executes = "/build.bazel.remote.execution.v2.Execution/Execute"
	asks     = "/build.bazel.remote.execution.v2.ActionCache/GetActionResult"
	reads    = "/google.bytestream.ByteStream/Read"
	finds    = "/build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs"
	works    = "/buildbarn.remoteworker.OperationQueue/Synchronize"
	shows    = "/forerunner.live.Output/Push"
)

// TestWaitQuiet has clients call while a farm drains. It must wait for calls in flight, and a
// second longer, but not forever.
func TestWaitQuiet(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		lasts  time.Duration // of the call; it begins a moment before the wait
		want   time.Duration
	}{
		"nobody":                    {"", 0, 0},
		"a call that has ended":     {asks, 0, quietFor},
		"one that takes three":      {reads, 3 * time.Second, 4 * time.Second},
		"one that does not end":     {asks, time.Hour, quietWithin},
		"an Execute under way":      {executes, time.Hour, quietFor},
		"an Execute that ends late": {executes, 500 * time.Millisecond, 1500 * time.Millisecond},
		"a worker":                  {works, time.Hour, 0},
		"a worker's output":         {shows, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &Activity{}
				time.Sleep(time.Hour)
				if c.method != "" {
					timer := time.AfterFunc(c.lasts, a.begin(c.method))
					defer timer.Stop()
				}
				synctest.Wait()
				began := time.Now()
				a.WaitQuiet(t.Context())
				if took := time.Since(began); took != c.want {
					t.Errorf("quiet after %v, want %v", took, c.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		a := &Activity{}
		defer a.begin(reads)()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		if a.WaitQuiet(ctx); time.Since(began) != 2*time.Second {
			t.Errorf("who has to end at once waits %v", time.Since(began))
		}
	})
}

// TestMovesBlobs has calls read, find and execute. Blobs count as moving while the first two are in
// flight, and for a second after.
func TestMovesBlobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Activity{}
		time.Sleep(time.Hour)
		for _, method := range []string{executes, asks, works, shows} {
			end := a.begin(method)
			if a.MovesBlobs() {
				t.Errorf("%s moves blobs", method)
			}
			end()
			if a.MovesBlobs() {
				t.Errorf("%s has moved blobs", method)
			}
		}
		for _, method := range []string{reads, finds} {
			end, other := a.begin(method), a.begin(method)
			end()
			time.Sleep(2 * quietFor)
			if !a.MovesBlobs() {
				t.Errorf("a second %s moves none", method)
			}
			other()
			time.Sleep(quietFor - 1)
			if !a.MovesBlobs() {
				t.Errorf("just after %s none were moved", method)
			}
			time.Sleep(time.Nanosecond)
			if a.MovesBlobs() {
				t.Errorf("a second after %s some move", method)
			}
		}
	})
}
