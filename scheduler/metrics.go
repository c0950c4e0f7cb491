package scheduler

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
)

// metrics are the scheduler's Prometheus metrics. The gauges ask State when
// they are scraped.
type metrics struct {
	server   *Server
	finished *prometheus.CounterVec
	queued   prometheus.Histogram
	lost     prometheus.Counter

	tasks, workers, queues, cohorts, preemptions *prometheus.Desc
}

// maxQueueMetrics bounds the queues that have metrics of their own.
const maxQueueMetrics = 1000

func newMetrics(r prometheus.Registerer, s *Server) (*metrics, error) {
	m := &metrics{
		server: s,
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forerunner_scheduler_operations_total",
			Help: "Operations finished, by outcome: cached, succeeded, failed (exit code), error, cancelled.",
		}, []string{"outcome"}),
		queued: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "forerunner_scheduler_queue_seconds",
			Help:    "Time from Execute to a worker.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forerunner_scheduler_workers_lost_total",
			Help: "Workers that stopped calling without having drained.",
		}),
		tasks: prometheus.NewDesc("forerunner_scheduler_actions",
			"Actions in hand, by state: queued, unmatched (no worker can serve it), executing.",
			[]string{"state"}, nil),
		workers: prometheus.NewDesc("forerunner_scheduler_workers",
			"Known workers, by state: idle, busy, draining.", []string{"state"}, nil),
		queues: prometheus.NewDesc("forerunner_scheduler_queue_actions",
			"Actions of one size class of one platform, by state: queued, executing. Their sum is how many slots are wanted.",
			[]string{"instance_prefix", "platform", "size_class", "state"}, nil),
		cohorts: prometheus.NewDesc("forerunner_scheduler_cohort",
			"Of each cohort, in its unit: capacity of its workers, used, and guaranteed (the sum of minimums).",
			[]string{"cohort", "what"}, nil),
		preemptions: prometheus.NewDesc("forerunner_scheduler_preemptions_total",
			"Runs stopped for a quota, to run again later.", []string{"cohort"}, nil),
	}
	if r == nil {
		return m, nil
	}
	return m, r.Register(m)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(c chan<- *prometheus.Desc) {
	m.finished.Describe(c)
	m.queued.Describe(c)
	m.lost.Describe(c)
	c <- m.tasks
	c <- m.workers
	c <- m.queues
	c <- m.cohorts
	c <- m.preemptions
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	m.finished.Collect(c)
	m.queued.Collect(c)
	m.lost.Collect(c)
	n, queues := m.server.gauges()
	type labels struct{ prefix, platform, class string }
	seen := map[labels]bool{} // platforms that differ may read alike
	for _, q := range queues[:min(len(queues), maxQueueMetrics)] {
		platform, class := q.Platform.String(), strconv.FormatUint(uint64(q.SizeClass), 10)
		if key := (labels{q.Prefix, platform, class}); seen[key] {
			continue
		} else {
			seen[key] = true
		}
		c <- prometheus.MustNewConstMetric(m.queues, prometheus.GaugeValue, float64(q.Queued), q.Prefix, platform, class, "queued")
		c <- prometheus.MustNewConstMetric(m.queues, prometheus.GaugeValue, float64(q.Executing), q.Prefix, platform, class, "executing")
	}
	for _, v := range m.server.Cohorts() {
		c <- prometheus.MustNewConstMetric(m.cohorts, prometheus.GaugeValue, float64(v.Capacity), v.Name, "capacity")
		c <- prometheus.MustNewConstMetric(m.cohorts, prometheus.GaugeValue, float64(v.Used), v.Name, "used")
		c <- prometheus.MustNewConstMetric(m.cohorts, prometheus.GaugeValue, float64(v.Minimums), v.Name, "guaranteed")
		c <- prometheus.MustNewConstMetric(m.preemptions, prometheus.CounterValue, float64(v.Preemptions), v.Name)
	}
	for _, g := range []struct {
		desc  *prometheus.Desc
		state string
		value int
	}{
		{m.tasks, "queued", n.Queued},
		{m.tasks, "unmatched", n.Unmatched},
		{m.tasks, "executing", n.Executing},
		{m.workers, "idle", n.Idle},
		{m.workers, "busy", n.Busy},
		{m.workers, "draining", n.Draining},
	} {
		c <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value), g.state)
	}
}

// outcome names how an operation ended.
func outcome(st *Status) string {
	switch code := codes.Code(st.Response.GetStatus().GetCode()); {
	case st.Response.GetCachedResult():
		return "cached"
	case code == codes.Canceled:
		return "cancelled"
	case code != codes.OK:
		return "error"
	case st.Response.GetResult().GetExitCode() != 0:
		return "failed"
	}
	return "succeeded"
}

// finished counts and logs the end of one operation.
func (s *Server) finished(st *Status) {
	end := outcome(st)
	s.metrics.finished.WithLabelValues(end).Inc()
	fields := make([]zap.Field, 0, 12)
	fields = append(fields, zap.String("operation", st.Name),
		zap.String("action", st.Digest.String()), zap.String("outcome", end))
	if st.Instance != "" {
		fields = append(fields, zap.String("instance", st.Instance))
	}
	if st.Worker != "" {
		s.neighbours.ran(st.Worker, st.Operation)
		queued, ran := st.spans()
		s.metrics.queued.Observe(queued.Seconds())
		fields = append(fields, zap.String("worker", st.Worker), zap.Int("attempts", st.Attempts),
			zap.Duration("queued", queued), zap.Duration("ran", ran))
	}
	if x := st.Response.GetResult().GetExitCode(); x != 0 {
		fields = append(fields, zap.Int32("exit_code", x))
	}
	if e := st.Response.GetStatus(); e.GetCode() != 0 {
		fields = append(fields, zap.Stringer("code", codes.Code(e.GetCode())), zap.String("error", e.GetMessage()))
	}
	if r := st.Request; r != nil {
		fields = append(fields, zap.String("invocation", r.GetToolInvocationId()),
			zap.String("target", r.GetTargetId()), zap.String("mnemonic", r.GetActionMnemonic()))
	}
	s.log.Info("operation finished", fields...)
}

// spans returns how long the operation waited and how long its last run took.
// One that joined a run has not waited.
func (s *Status) spans() (queued, ran time.Duration) {
	return max(s.Started.Sub(s.Queued), 0), s.Ended.Sub(s.Started)
}
