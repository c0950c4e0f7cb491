package serve

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestProbesThatHang has probes that never answer. Each caller must get an error in time, and no
// probe may run twice at once.
func TestProbesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Readiness{}
		var tries atomic.Int32
		hangs := make(chan struct{})
		for _, what := range []string{"disk", "mounts"} {
			r.Add(what, func() error { tries.Add(1); <-hangs; return errors.New("it is slow") })
		}
		for range 3 {
			start, w := time.Now(), httptest.NewRecorder()
			r.ServeHTTP(w, nil)
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "disk: no answer within 2s\nmounts: no answer") || time.Since(start) != ProbePatience {
				t.Errorf("%d %q after %v", w.Code, w.Body, time.Since(start))
			}
		}
		close(hangs)
		synctest.Wait()
		if tries.Load() != 2 {
			t.Errorf("%d tries of two things at the same time", tries.Load())
		}
	})
}

// TestProbesAreRemembered: a recent success is not probed again, a failure is.
func TestProbesAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Readiness{}
		tries, fault := 0, error(nil)
		r.Add("disk", func() error { tries++; return fault })
		ask := func(want, wantTries int) {
			t.Helper()
			w := httptest.NewRecorder()
			if r.ServeHTTP(w, nil); w.Code != want || tries != wantTries {
				t.Errorf("%d after %d tries, want %d after %d", w.Code, tries, want, wantTries)
			}
		}
		ask(http.StatusOK, 1)
		time.Sleep(probeAge - 1)
		ask(http.StatusOK, 1)
		time.Sleep(time.Nanosecond)
		ask(http.StatusOK, 2)
		time.Sleep(probeAge)
		fault = errors.New("it is full")
		ask(http.StatusServiceUnavailable, 3)
		ask(http.StatusServiceUnavailable, 4)
		fault = nil
		ask(http.StatusOK, 5)
	})
}

// TestServing: a program that was told to stop is not ready.
func TestServing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	try := Serving(ctx)
	if err := try(); err != nil {
		t.Error(err)
	}
	cancel()
	if try() == nil {
		t.Error("it is ready although it was told to stop")
	}
}
