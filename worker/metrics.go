package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/worker/pipeline"
)

// A metrics value has the worker's counters; see the Help texts.
type metrics struct {
	slots       prometheus.Gauge
	actions     *prometheus.CounterVec
	stage       *prometheus.HistogramVec
	inStage     *prometheus.GaugeVec
	races       *prometheus.CounterVec
	files       *prometheus.CounterVec
	bytes       *prometheus.CounterVec
	reuse       *prometheus.CounterVec
	stalled     prometheus.Counter
	cpu         *prometheus.CounterVec
	throttled   prometheus.Counter
	oomKills    prometheus.Counter
	unreachable prometheus.Counter
	damagedRuns prometheus.Counter
	resting     prometheus.GaugeFunc

	peerBlobs, peerBytes prometheus.Counter
}

// newMetrics registers the counters of a worker with so many slots. resting is called when the
// metrics are read.
func newMetrics(r prometheus.Registerer, slots int, resting func() float64) (*metrics, error) {
	counters := func(name, help, label string, values ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forerunner_worker_" + name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value)
		}
		return v
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "forerunner_worker_" + name, Help: help})
	}
	m := &metrics{
		slots: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forerunner_worker_slots",
			Help: "Slots: commands that may run at once.",
		}),
		actions: counters("actions_total",
			"Completed actions by outcome: ok, exit_code (not 0), out_of_memory, or a gRPC code.",
			"outcome", "ok", "exit_code", "out_of_memory"),
		stage: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "forerunner_worker_stage_seconds",
			Help:    "Time that actions spent in each stage.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"stage"}),
		inStage: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forerunner_worker_stage_actions",
			Help: "Actions in each stage of the pipeline: fetch (waiting for a slot), execute (in a slot), report.",
		}, []string{"stage"}),
		races: counters("profiles_total",
			"Actions with prefetching by the kind of profile: exact, coarse, none.",
			"profile", prefetch.None.String(), prefetch.Coarse.String(), prefetch.Exact.String()),
		files: counters("prefetch_files_total",
			"Files that commands opened: prefetched in time (foreseen), still arriving (late), fetched because of the open "+
				"(missed), already in the store (local); and files that were prefetched but not opened (unused).",
			"result", "foreseen", "late", "missed", "local", "unused"),
		bytes: counters("prefetch_bytes_total",
			"Bytes of the files in forerunner_worker_prefetch_files_total.",
			"result", "foreseen", "late", "missed", "local", "unused"),
		reuse: counters("reuse_total",
			"Actions with --reuse=profile by outcome: reused; unknown, no earlier run; differs, "+
				"an input of each earlier run has changed; gone, outputs are no longer in the storage; failed; unwanted by the client.",
			"outcome", string(lookback.Reused), string(lookback.Unknown), string(lookback.Differs), string(lookback.Gone),
			string(lookback.Failed), string(lookback.Unwanted)),
		stalled: counter("stalled_seconds_total", "Time that commands waited for storage."),
		cpu: counters("cpu_seconds_total", "CPU time of commands by mode: user, system.",
			"mode", "user", "system"),
		throttled: counter("throttled_seconds_total", "Time that commands were throttled by the CPU quota of their slot."),
		oomKills:  counter("oom_kills_total", "Processes of commands that the kernel killed for lack of memory."),
		damagedRuns: counter("damaged_runs_total",
			"Runs of commands that read damaged bytes on this worker; their results were discarded."),
		resting: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forerunner_worker_resting",
			Help: "1 while the worker takes no action because it could not run one, else 0.",
		}, resting),
		unreachable: counter("synchronize_failures_total", "Calls to the scheduler that failed."),

		peerBlobs: counter("peer_blobs_total",
			"Blobs fetched from other workers instead of storage."),
		peerBytes: counter("peer_bytes_total",
			"Bytes of blobs fetched from other workers instead of storage."),
	}
	m.slots.Set(float64(slots))
	return m, m.register(r)
}

// register adds all stages at zero, and registers the metrics with r; nil: nowhere.
func (m *metrics) register(r prometheus.Registerer) error {
	for _, name := range stageNames {
		m.stage.WithLabelValues(name)
	}
	for _, name := range pipeline.Stages {
		m.inStage.WithLabelValues(name)
	}
	if r == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{
		m.slots, m.actions, m.stage, m.inStage, m.races, m.files, m.bytes, m.reuse, m.stalled,
		m.cpu, m.throttled, m.oomKills, m.unreachable, m.damagedRuns, m.resting, m.peerBlobs, m.peerBytes,
	} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) observeRace(profile string, f prefetch.Figures) {
	m.races.WithLabelValues(profile).Inc()
	for result, amount := range map[string]prefetch.Amount{
		"foreseen": f.Foreseen, "late": f.Late, "missed": f.Missed, "local": f.Local, "unused": f.Unused,
	} {
		m.files.WithLabelValues(result).Add(float64(amount.Files))
		m.bytes.WithLabelValues(result).Add(float64(amount.Bytes))
	}
}

func (m *metrics) observe(stage string, d time.Duration) {
	m.stage.WithLabelValues(stage).Observe(d.Seconds())
}

// observeGroup adds the slot's cgroup figures of a command; it does nothing without them.
func (m *metrics) observeGroup(used *cgroup.Usage) {
	if used == nil {
		return
	}
	m.cpu.WithLabelValues("user").Add(used.User.Seconds())
	m.cpu.WithLabelValues("system").Add(used.System.Seconds())
	m.throttled.Add(used.Throttled.Seconds())
	m.oomKills.Add(float64(used.OOMKills))
}
