package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestRequestsAreCounted reads many files: each is looked up and opened once, and one request
// in sixteen is timed.
func TestRequestsAreCounted(t *testing.T) {
	const files, timedEvery = 64, 16
	registry := prometheus.NewRegistry()
	f := openFS(t, Options{Metrics: registry})
	src := vfstest.NewSource(t)
	var paths []string
	for i := range files {
		paths = append(paths, fmt.Sprint("file-", i))
	}
	r := openRoot(t, f, RootSpec{Digest: src.Tree(t, paths...), Source: src})
	before := requestsSeen(t, registry)
	for _, p := range paths {
		if _, err := os.ReadFile(filepath.Join(r.Path(), p)); err != nil {
			t.Fatal(err)
		}
	}
	after := requestsSeen(t, registry)
	for _, kind := range []string{"lookup", "open"} {
		n := after["forerunner_fuse_requests_total "+kind] - before["forerunner_fuse_requests_total "+kind]
		timed := after["forerunner_fuse_request_seconds "+kind] - before["forerunner_fuse_request_seconds "+kind]
		if n < files || timed < n/timedEvery-1 || timed > n/timedEvery+1 {
			t.Errorf("%s: %v requests, %v timed, for %d files", kind, n, timed, files)
		}
	}
}

// requestsSeen returns what each series has counted.
func requestsSeen(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			seen[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return seen
}
