package fetch

import "github.com/prometheus/client_golang/prometheus"

// metrics has the counters of a Group.
type metrics struct {
	group                 *shared
	fetches, fetchedBytes *prometheus.Desc
}

func newMetrics(x *shared) *metrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("forerunner_store_"+name, help, nil, nil)
	}
	return &metrics{
		group:        x,
		fetches:      desc("fetches_total", "Blobs fetched into the store."),
		fetchedBytes: desc("fetched_bytes_total", "Bytes of fetched blobs."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, c) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	f := &m.group.fetched
	c <- prometheus.MustNewConstMetric(m.fetches, prometheus.CounterValue, float64(f.blobs.Load()))
	c <- prometheus.MustNewConstMetric(m.fetchedBytes, prometheus.CounterValue, float64(f.bytes.Load()))
}
