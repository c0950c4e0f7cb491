package scheduler

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// TestQueueMetrics checks what an autoscaler goes by.
func TestQueueMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	inFarm(t, ServerOptions{Metrics: registry}, func(t *testing.T, f *farm) {
		w := f.worker("only")
		for _, name := range []string{"a", "b", "c"} {
			f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action(name)})
			synctest.Wait()
			if name == "a" {
				w.idle()
			}
		}
		metrics, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, m := range metrics {
			name, ofScheduler := strings.CutPrefix(m.GetName(), "forerunner_scheduler_")
			if !ofScheduler || !slices.Contains([]string{"queue_actions", "workers", "slots"}, name) {
				continue
			}
			for _, v := range m.GetMetric() {
				key := name + " "
				for _, l := range v.GetLabel() {
					key += l.GetName() + "=" + l.GetValue() + " "
				}
				got[key] = v.GetGauge().GetValue()
			}
		}
		maps.DeleteFunc(got, func(_ string, v float64) bool { return v == 0 })
		queue := "queue_actions instance_prefix= platform={} size_class=0 state="
		if want := map[string]float64{
			queue + "queued ": 2, queue + "executing ": 1, "workers state=busy ": 1, "slots state=busy ": 1,
		}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestQueueHistogramsAreBounded has more queues than have metrics of their own.
func TestQueueHistogramsAreBounded(t *testing.T) {
	w := newWaits()
	for i := range maxQueueMetrics + 10 {
		w.of(event.QueueName{Platform: "{}", SizeClass: uint32(i)}).Observe(1)
	}
	w.of(event.QueueName{Platform: "{}", SizeClass: 7}).Observe(1)
	registry := prometheus.NewRegistry()
	if err := registry.Register(w.seconds); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series, counted := families[0].GetMetric(), uint64(0)
	for _, m := range series {
		counted += m.GetHistogram().GetSampleCount()
	}
	if len(series) != maxQueueMetrics+1 || counted != maxQueueMetrics+11 {
		t.Errorf("%d series have counted %d", len(series), counted)
	}
}
