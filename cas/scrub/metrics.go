package scrub

import "github.com/prometheus/client_golang/prometheus"

// metrics exports Status at each collection.
type metrics struct {
	scrubber                      *Scrubber
	period, done, whole           *prometheus.Desc
	files, bytes, damaged, inPass *prometheus.Desc
}

func newMetrics(s *Scrubber) *metrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("forerunner_store_scrub_"+name, help, nil, nil)
	}
	return &metrics{
		scrubber: s,
		period:   desc("period_seconds", "Period of the scrub."),
		done:     desc("done_ratio", "Completed share of the latest pass."),
		whole:    desc("whole_timestamp_seconds", "End of the last complete pass; before the first one ends, its start."),
		files:    desc("files_total", "Files read by the scrub."),
		bytes:    desc("bytes_total", "Bytes read by the scrub."),
		damaged:  desc("damaged_total", "Damaged files found by the scrub."),
		inPass:   desc("pass_damaged", "Damaged files found by the latest pass."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, c) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64) {
		c <- prometheus.MustNewConstMetric(d, kind, value)
	}
	s := m.scrubber.Status()
	var whole float64
	if !s.LastWhole.IsZero() {
		whole = float64(s.LastWhole.UnixMilli()) / 1000
	}
	send(m.period, prometheus.GaugeValue, s.Every.Seconds())
	send(m.done, prometheus.GaugeValue, s.Done)
	send(m.whole, prometheus.GaugeValue, whole)
	send(m.files, prometheus.CounterValue, float64(s.AllFiles))
	send(m.bytes, prometheus.CounterValue, float64(s.AllBytes))
	send(m.damaged, prometheus.CounterValue, float64(s.AllDamaged))
	send(m.inPass, prometheus.GaugeValue, float64(s.Damaged))
}
