package scheduler

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/operators"
)

// metrics are the scheduler's Prometheus metrics. The State is read when they are scraped.
type metrics struct {
	engine   *engine.Engine
	finished *prometheus.CounterVec
	queued   waits
	chosen   *prometheus.CounterVec
	lost     prometheus.Counter
	returned *prometheus.CounterVec

	tasks, workers, slots, queues, suspects *prometheus.Desc
	// Of cohorts.
	cohorts, waiting, preemptions *prometheus.Desc
	// Of Tally.
	joined, outgrown, hedges, won, spilled, moved, suspensions *prometheus.Desc
}

// maxQueueMetrics bounds the queues that have metrics of their own.
const maxQueueMetrics = 1000

// maxSuspectMetrics bounds the suspended workers that have one.
const maxSuspectMetrics = 100

func newMetrics(r prometheus.Registerer, e *engine.Engine) (*metrics, error) {
	m := &metrics{
		engine: e,
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forerunner_scheduler_operations_total",
			Help: "Completed operations by outcome: cached, succeeded, failed (exit code), error, cancelled.",
		}, []string{"outcome"}),
		queued: newWaits(),
		chosen: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forerunner_scheduler_size_choices_total",
			Help: "Actions by the size class on which they start.",
		}, []string{"size_class"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forerunner_scheduler_workers_lost_total",
			Help: "Workers that stopped calling without a drain.",
		}),
		returned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forerunner_scheduler_returned_runs_total",
			Help: "Runs that were taken from their worker, or that it lost, returned or could not do, by reason.",
		}, []string{"reason"}),
		tasks: prometheus.NewDesc("forerunner_scheduler_actions",
			"Current actions by state: queued, unmatched (no worker can serve them), executing.",
			[]string{"state"}, nil),
		workers: prometheus.NewDesc("forerunner_scheduler_workers",
			"Worker programs by state: idle, busy, draining, resting, suspended.", []string{"state"}, nil),
		slots: prometheus.NewDesc("forerunner_scheduler_slots",
			"Slots of workers by state: busy, free, unavailable (of workers that get no actions).",
			[]string{"state"}, nil),
		suspects: prometheus.NewDesc("forerunner_scheduler_worker_suspended",
			"1 for each worker that is suspended, or on trial, because its actions failed.", []string{"worker"}, nil),
		queues: prometheus.NewDesc("forerunner_scheduler_queue_actions",
			"Actions of one size class of one platform by state: queued, executing. Their sum is the number of slots that the farm needs.",
			[]string{"instance_prefix", "platform", "size_class", "state"}, nil),
		cohorts: prometheus.NewDesc("forerunner_scheduler_cohort",
			"Units of each cohort: capacity of its workers, used, and guaranteed (the sum of minimums).",
			[]string{"cohort", "what"}, nil),
		waiting: prometheus.NewDesc("forerunner_scheduler_cohort_queued_actions",
			"Actions that wait for the workers of a cohort.", []string{"cohort"}, nil),
		preemptions: prometheus.NewDesc("forerunner_scheduler_preemptions_total",
			"Runs stopped for a quota, to run again later.", []string{"cohort"}, nil),
		joined: prometheus.NewDesc("forerunner_scheduler_joined_operations_total",
			"Operations that joined a queued or running action.", nil, nil),
		outgrown: prometheus.NewDesc("forerunner_scheduler_size_retries_total",
			"Runs that failed on a smaller size class and were repeated on the largest.", nil, nil),
		hedges: prometheus.NewDesc("forerunner_scheduler_hedges_total",
			"Runs started on the largest size class while the same action took too long on a smaller one.", nil, nil),
		won: prometheus.NewDesc("forerunner_scheduler_hedges_won_total",
			"Hedged runs that ended first.", nil, nil),
		spilled: prometheus.NewDesc("forerunner_scheduler_size_spills_total",
			"Actions that waited for a size class and ran on an idle worker of a larger one.", nil, nil),
		moved: prometheus.NewDesc("forerunner_scheduler_pool_moves_total",
			"Actions that waited for a worker of their platform and ran on an idle one of another platform that fits.", nil, nil),
		suspensions: prometheus.NewDesc("forerunner_scheduler_suspensions_total",
			"Suspensions of workers whose actions failed while those of other workers did not.", nil, nil),
	}
	for _, end := range []string{"cached", "succeeded", "failed", "error", "cancelled"} {
		m.finished.WithLabelValues(end)
	}
	for _, why := range event.Whys() {
		m.returned.WithLabelValues(why.Label())
	}
	if r == nil {
		return m, nil
	}
	return m, r.Register(m)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(c chan<- *prometheus.Desc) {
	m.finished.Describe(c)
	m.queued.seconds.Describe(c)
	m.chosen.Describe(c)
	m.lost.Describe(c)
	m.returned.Describe(c)
	for _, d := range []*prometheus.Desc{
		m.tasks, m.workers, m.slots, m.queues, m.suspects, m.cohorts, m.waiting, m.preemptions,
		m.joined, m.outgrown, m.hedges, m.won, m.spilled, m.moved, m.suspensions,
	} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	m.finished.Collect(c)
	m.queued.seconds.Collect(c)
	m.chosen.Collect(c)
	m.lost.Collect(c)
	m.returned.Collect(c)
	var n view.Counts
	var queues []view.Queue
	var tally view.Tally
	var cohorts []view.Cohort
	var suspects []map[string]string
	for _, see := range []func(*core.View){ // one at a time, as some look at every worker
		func(v *core.View) { n, tally = v.Counts(), v.Tally() },
		func(v *core.View) { queues = v.QueueCounts() },
		func(v *core.View) { cohorts, suspects = v.Cohorts(), v.Suspects(maxSuspectMetrics) },
	} {
		m.engine.Look(see)
	}
	m.collectQueues(c, queues)
	workers, slots := m.workersOf(queues)
	m.collectSuspects(c, suspects)
	for _, v := range cohorts {
		c <- prometheus.MustNewConstMetric(m.cohorts, prometheus.GaugeValue, float64(v.Capacity), v.Name, "capacity")
		c <- prometheus.MustNewConstMetric(m.cohorts, prometheus.GaugeValue, float64(v.Used), v.Name, "used")
		c <- prometheus.MustNewConstMetric(m.cohorts, prometheus.GaugeValue, float64(v.Minimums), v.Name, "guaranteed")
		waiting := 0
		for _, u := range v.Uses {
			waiting += u.Waiting
		}
		c <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(waiting), v.Name)
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
		{m.workers, "idle", workers.Idle},
		{m.workers, "busy", workers.Busy},
		{m.workers, "draining", workers.Draining},
		{m.workers, "resting", workers.Resting},
		{m.workers, "suspended", workers.Suspended},
		{m.slots, "busy", slots.Busy},
		{m.slots, "free", slots.Free},
		{m.slots, "unavailable", slots.All - slots.Busy - slots.Free},
	} {
		c <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value), g.state)
	}
	for _, t := range []struct {
		desc  *prometheus.Desc
		value uint64
	}{
		{m.joined, tally.Joined},
		{m.outgrown, tally.Outgrown},
		{m.hedges, tally.Hedges},
		{m.won, tally.Won},
		{m.spilled, tally.Spilled},
		{m.moved, tally.Moved},
		{m.suspensions, tally.Suspensions},
	} {
		c <- prometheus.MustNewConstMetric(t.desc, prometheus.CounterValue, float64(t.value))
	}
}

// workersOf counts the workers of all queues, and their slots.
func (m *metrics) workersOf(queues []view.Queue) (n view.Workers, slots operators.Slots) {
	for _, q := range queues {
		n = n.Plus(q.Workers)
		slots = slots.Plus(operators.SlotsOf(q.Loads...))
	}
	return n, slots
}

func (m *metrics) collectQueues(c chan<- prometheus.Metric, queues []view.Queue) {
	type labels struct{ prefix, platform, class string }
	seen := map[labels]bool{} // different platforms may have equal labels
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
}

// collectSuspects shows each worker once: programs of several queues may have the same identity.
func (m *metrics) collectSuspects(c chan<- prometheus.Metric, suspects []map[string]string) {
	seen := map[string]bool{}
	for _, id := range suspects {
		name := names.Pairs(id)
		if !seen[name] {
			c <- prometheus.MustNewConstMetric(m.suspects, prometheus.GaugeValue, 1, name)
		}
		seen[name] = true
	}
}

// waits measures how long operations wait, by queue. Queues come and go; the first
// maxQueueMetrics that were ever waited for have a histogram of their own.
type waits struct {
	seconds *prometheus.HistogramVec
	mu      *sync.Mutex
	known   map[event.QueueName]prometheus.Observer // guarded by mu
}

func newWaits() waits {
	return waits{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "forerunner_scheduler_queue_seconds",
			Help:    "Time from Execute to the last worker, for completed operations that ran.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"instance_prefix", "platform", "size_class", "cohort"}),
		mu:    &sync.Mutex{},
		known: map[event.QueueName]prometheus.Observer{},
	}
}

// of returns the histogram of a queue.
func (w waits) of(q event.QueueName) prometheus.Observer {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.known[q]
	switch {
	case ok:
	case len(w.known) < maxQueueMetrics:
		o = w.seconds.WithLabelValues(q.Prefix, q.Platform, strconv.FormatUint(uint64(q.SizeClass), 10), q.Cohort)
		w.known[q] = o
	default:
		o = w.seconds.WithLabelValues("other", "other", "other", "other")
	}
	return o
}

// outcome names how an operation ended.
func outcome(st *event.Status) string {
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
