package farm

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
