package disk

import "github.com/prometheus/client_golang/prometheus"

// storeMetrics exports Stats at each collection.
type storeMetrics struct {
	store                            *Store
	bytes, maxBytes, blobs           *prometheus.Desc
	lookups, evictions, evictedBytes *prometheus.Desc
	verified, verifiedBytes          *prometheus.Desc
	damaged, aside, asideBytes       *prometheus.Desc
}

func newStoreMetrics(s *Store) *storeMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("forerunner_store_"+name, help, labels, nil)
	}
	return &storeMetrics{
		store:        s,
		bytes:        desc("bytes", "Bytes of the blobs in the store."),
		maxBytes:     desc("max_bytes", "Limit of the store in bytes."),
		blobs:        desc("blobs", "Blobs in the store."),
		lookups:      desc("lookups_total", "Lookups of blobs by result: hit, miss.", "result"),
		evictions:    desc("evictions_total", "Evicted blobs."),
		evictedBytes: desc("evicted_bytes_total", "Bytes of evicted blobs."),

		verified:      desc("verified_total", "Blobs in the store that were read and hashed."),
		verifiedBytes: desc("verified_bytes_total", "Bytes of blobs that were read and hashed."),
		damaged:       desc("damaged_total", "Damaged blobs found in the store, and damaged copies of blobs."),
		aside:         desc("aside_blobs", "Damaged blobs in the folder aside."),
		asideBytes:    desc("aside_bytes", "Bytes of damaged blobs in the folder aside."),
	}
}

// Describe implements prometheus.Collector.
func (m *storeMetrics) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, c) }

// Collect implements prometheus.Collector.
func (m *storeMetrics) Collect(c chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value int64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, kind, float64(value), labels...)
	}
	s := m.store.Stats()
	send(m.bytes, prometheus.GaugeValue, s.Bytes)
	send(m.maxBytes, prometheus.GaugeValue, s.MaxBytes)
	send(m.blobs, prometheus.GaugeValue, s.Blobs)
	send(m.lookups, prometheus.CounterValue, s.Hits, "hit")
	send(m.lookups, prometheus.CounterValue, s.Misses, "miss")
	send(m.evictions, prometheus.CounterValue, s.EvictedBlobs)
	send(m.evictedBytes, prometheus.CounterValue, s.EvictedBytes)
	send(m.verified, prometheus.CounterValue, s.VerifiedBlobs)
	send(m.verifiedBytes, prometheus.CounterValue, s.VerifiedBytes)
	send(m.damaged, prometheus.CounterValue, s.DamagedBlobs)
	send(m.aside, prometheus.GaugeValue, s.AsideBlobs)
	send(m.asideBytes, prometheus.GaugeValue, s.AsideBytes)
}
