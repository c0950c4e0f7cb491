package serve

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestLocalOnly has names that stand for this machine and names that were made to.
func TestLocalOnly(t *testing.T) {
	h := localOnly(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{
		"127.0.0.1:8981": 200, "localhost:8981": 200, "localhost": 200, "[::1]:8981": 200, "127.0.0.1": 200, "[::1]": 200,
		"elsewhere.example:8981": 421, "localhost.elsewhere.example": 421, "": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
}

// TestProfilingIsNotForAll has the port of a program on loopback, and one that others reach.
func TestProfilingIsNotForAll(t *testing.T) {
	for address, want := range map[string]int{"127.0.0.1:8981": http.StatusOK, "0.0.0.0:8981": http.StatusNotFound} {
		h := Handler(address, Protection{}, Shown{Registry: NewRegistry(), Ready: &Readiness{}})
		for path, want := range map[string]int{"/debug/pprof/heap": want, "/metrics": http.StatusOK, "/healthz": http.StatusOK, "/readyz": http.StatusOK} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = "127.0.0.1:8981"
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want || w.Body.Len() == 0 {
				t.Errorf("%s of %s: %d, want %d", path, address, w.Code, want)
			}
		}
	}
}
