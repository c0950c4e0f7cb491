package disk

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestStoreMetrics reads a blob that must be fetched, twice.
func TestStoreMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	s, err := Open(t.TempDir(), Options{MaxBytes: 100, Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := digest.Of(digest.SHA256, []byte("hello"))
	for n := range 3 {
		if b, err := s.ReadBlob(t.Context(), d); n > 0 && (string(b) != "hello" || err != nil) {
			t.Fatalf("%q, %v", b, err)
		}
		if n == 0 {
			storePut(t, s, "hello")
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"bytes": 5, "max_bytes": 100, "blobs": 1, "evictions_total": 0, "evicted_bytes_total": 0,
		"lookups_total hit": 2, "lookups_total miss": 1,
	} {
		if v, ok := got["forerunner_store_"+name]; !ok || v != want {
			t.Errorf("%s is %v, %t; want %v", name, v, ok, want)
		}
	}
}
