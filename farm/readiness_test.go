package farm

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// readyz asks a program whether it is ready.
func readyz(t *testing.T, address string) (code int, text string) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// becomes waits until a program is ready, or not, and says why.
func becomes(t *testing.T, address string, code int, why string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got, text := readyz(t, address)
		if got == code && strings.Contains(text, why) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d %q, want %d %q", got, text, code, why)
		}
	}
}

// TestSchedulerIsReady takes a scheduler its storage's folder away, as a disk that fails does.
func TestSchedulerIsReady(t *testing.T) {
	s := &Scheduler{HTTP: freePort(t)}
	startScheduler(t, s)
	becomes(t, s.HTTP, http.StatusOK, "ready")
	tmp := filepath.Join(s.Data, "storage", "actions", "tmp")
	if err := os.Rename(tmp, tmp+"-gone"); err != nil {
		t.Fatal(err)
	}
	becomes(t, s.HTTP, http.StatusServiceUnavailable, "storage: ")
	if err := os.Rename(tmp+"-gone", tmp); err != nil {
		t.Fatal(err)
	}
	becomes(t, s.HTTP, http.StatusOK, "ready")
}

// TestProbesThatHang asks for what never answers: each who asks is told so in time, and nothing is tried twice.
func TestProbesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &readiness{}
		var tries atomic.Int32
		hangs := make(chan struct{})
		r.add("disk", func() error { tries.Add(1); <-hangs; return errors.New("it is slow") })
		for range 3 {
			start, w := time.Now(), httptest.NewRecorder()
			r.ServeHTTP(w, nil)
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "disk: no answer") || time.Since(start) != probePatience {
				t.Errorf("%d %q after %v", w.Code, w.Body, time.Since(start))
			}
		}
		close(hangs)
		synctest.Wait()
		if tries.Load() != 1 {
			t.Errorf("%d tries at the same time", tries.Load())
		}
	})
}
