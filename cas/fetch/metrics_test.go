package fetch

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/cas/disk"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	s, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x, err := NewGroup(s, Options{Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	up, ds := storeNewUpstream("hello")
	for range 2 {
		if b, err := x.Through(up).ReadBlob(t.Context(), ds[0]); string(b) != "hello" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	if got["forerunner_store_fetches_total"] != 1 || got["forerunner_store_fetched_bytes_total"] != 5 {
		t.Errorf("%v", got)
	}
}
