package sizes

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

//go:embed sizes.json
var defaultSizes []byte

// sizesParameters define the stream of actions, and the workers.
type sizesParameters struct {
	Seed            uint64  `json:"seed"`
	Days            float64 `json:"days"`
	BuildsPerDay    float64 `json:"builds_per_day"` // at random times
	ActionsPerBuild int     `json:"actions_per_build"`
	// FirstActions exist at the start. NewShare is the share of later jobs whose action is new.
	FirstActions int     `json:"first_actions"`
	NewShare     float64 `json:"new_share"`
	// FailingBuilds is the share of builds with an action that fails on every class.
	FailingBuilds float64 `json:"failing_builds"`
	// Noise and DriftPerDay are standard deviations of the logarithm of an action's duration: Noise
	// of each run, DriftPerDay of the change per day.
	Noise       float64 `json:"noise"`
	DriftPerDay float64 `json:"drift_per_day"`
	// JumpsPerDay is the probability that an action changes completely on a day.
	JumpsPerDay  float64 `json:"jumps_per_day"`
	MemoryMiB    float64 `json:"memory_mib_per_class"`
	BusyCPUShare float64 `json:"busy_cpu_share"` // CPU share of serial work; the rest is waiting
	Classes      []struct {
		Size    uint32 `json:"size"`
		Workers int    `json:"workers"` // workers of a farm with a limited number
		// FewSmall is the number of small workers on the farm with few of them.
		FewSmall int `json:"few_small"`
	} `json:"classes"`
	Kinds []sizesKind `json:"kinds"`
}

// A sizesKind has what similar actions have in common. Their work on one CPU and their memory are
// Pareto distributed, with a minimum and an alpha.
type sizesKind struct {
	Name         string  `json:"name"` // empty: an action of unknown kind
	Share        float64 `json:"share"`
	Seconds      float64 `json:"seconds"`
	SecondsAlpha float64 `json:"seconds_alpha"`
	// ParallelShare is the share of actions that do a part of their work, from ParallelFrom to
	// ParallelTo, on all CPUs.
	ParallelShare float64 `json:"parallel_share"`
	ParallelFrom  float64 `json:"parallel_from"`
	ParallelTo    float64 `json:"parallel_to"`
	MemoryMiB     float64 `json:"memory_mib"`
	MemoryAlpha   float64 `json:"memory_alpha"`
}

// readSizes reads parameters from a file, or the built-in ones if path is empty.
func readSizes(path string) (p *sizesParameters, err error) {
	text := defaultSizes
	if path != "" {
		if text, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return nil, fmt.Errorf("read parameters %s: %w", path, err)
	}
	if len(p.Kinds) == 0 || len(p.Classes) < 2 || p.FirstActions < 1 {
		return nil, errors.New("parameters: want at least one kind, two classes and one of first_actions")
	}
	return p, nil
}

// withFewSmall returns the parameters of the farm with few small workers.
func (p *sizesParameters) withFewSmall() *sizesParameters {
	few := *p
	few.Classes = slices.Clone(p.Classes)
	for i := range few.Classes {
		few.Classes[i].Workers = few.Classes[i].FewSmall
	}
	return &few
}

func (p *sizesParameters) smallest() uint32 { return p.Classes[0].Size }
func (p *sizesParameters) largest() uint32  { return p.Classes[len(p.Classes)-1].Size }

// longestSeconds limits an action's work on one CPU.
const longestSeconds = 4 * 3600

// A simAction is an action that runs again and again.
type simAction struct {
	sizeclass.Action
	serial, parallel float64 // seconds on one CPU
	memory           float64 // MiB
	day              int     // day up to which it has drifted
}

// A simJob is one action to run, independent of where it runs.
type simJob struct {
	action  sizeclass.Action
	arrives time.Time
	truth
}

// A truth knows how a job runs on each class.
type truth interface {
	// took returns how long the job runs, and its outcome.
	took(class uint32) (time.Duration, sizeclass.Outcome)
	// run returns a worker's report of a run with this duration.
	run(class uint32, took time.Duration) sizeclass.Run
}

// A modelled truth follows the analyzer's own model: Amdahl's law.
type modelled struct {
	p *sizesParameters
	// The requirements on a worker of class 1 with enough memory.
	serial, parallel, memory float64
	// fails: the job fails by its own fault, after the share stops of its time. If the job runs out
	// of memory, it also fails at that time.
	fails bool
	stops float64
}

func (m *modelled) took(class uint32) (time.Duration, sizeclass.Outcome) {
	seconds := m.serial + m.parallel/float64(class)
	switch {
	case m.memory > m.p.MemoryMiB*float64(class):
		return secondsOf(seconds * m.stops), sizeclass.OutOfMemory
	case m.fails:
		return secondsOf(seconds * m.stops), sizeclass.Failed
	}
	return secondsOf(seconds), sizeclass.Succeeded
}

func (m *modelled) run(class uint32, took time.Duration) sizeclass.Run {
	whole := m.serial + m.parallel/float64(class)
	cpu := (m.serial*m.p.BusyCPUShare + m.parallel) * took.Seconds() / whole
	limit := m.p.MemoryMiB * float64(class)
	return sizeclass.Run{
		Duration: took, CPU: secondsOf(cpu), CPUs: float64(class),
		MemoryLimitBytes: int64(limit * (1 << 20)), PeakMemoryBytes: int64(min(m.memory, limit) * (1 << 20)),
	}
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// A simStream makes jobs.
type simStream struct {
	p       *sizesParameters
	random  *rand.Rand
	actions []*simAction
}

// jobs returns all jobs in order of time. The same parameters give the same jobs.
func (p *sizesParameters) jobs() (jobs []*simJob) {
	s := &simStream{p: p, random: rand.New(rand.NewPCG(p.Seed, 0))}
	for range p.FirstActions {
		s.add()
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := 0.0; ; {
		at += s.random.ExpFloat64() / p.BuildsPerDay
		if at >= p.Days {
			return jobs
		}
		failing := -1
		if s.random.Float64() < p.FailingBuilds {
			failing = s.random.IntN(p.ActionsPerBuild)
		}
		arrives := start.Add(secondsOf(at * 24 * 3600))
		for i := range p.ActionsPerBuild {
			jobs = append(jobs, s.job(int(at), arrives, i == failing))
		}
	}
}

func (s *simStream) job(day int, arrives time.Time, fails bool) *simJob {
	n := len(s.actions)
	// Recent actions run more often.
	i := n - 1 - int(float64(n)*math.Pow(s.random.Float64(), 2))
	if s.random.Float64() < s.p.NewShare {
		s.add()
		i = n
	}
	a := s.actions[max(i, 0)]
	for ; a.day < day; a.day++ {
		s.drift(a)
	}
	noise := math.Exp(s.random.NormFloat64() * s.p.Noise)
	return &simJob{action: a.Action, arrives: arrives, truth: &modelled{
		p: s.p, serial: a.serial * noise, parallel: a.parallel * noise,
		memory: min(a.memory*math.Exp(s.random.NormFloat64()*s.p.Noise/4), s.mostMemory()),
		fails:  fails, stops: 0.1 + 0.9*s.random.Float64(),
	}}
}

// mostMemory is the memory that the largest class certainly has.
func (s *simStream) mostMemory() float64 { return s.p.MemoryMiB * float64(s.p.largest()) * 0.9 }

func (s *simStream) add() {
	id := binary.BigEndian.AppendUint64(nil, uint64(len(s.actions)))
	a := &simAction{Action: sizeclass.Action{
		Reduced: digest.Of(digest.SHA256, id), Digest: digest.Of(digest.SHA256, append(id, 'x')), Timeout: time.Hour * 24,
	}}
	s.shape(a)
	if n := len(s.actions); n > 0 {
		a.day = s.actions[n-1].day
	}
	s.actions = append(s.actions, a)
}

// shape makes a an action of a random kind.
func (s *simStream) shape(a *simAction) {
	kind, draw := s.p.Kinds[len(s.p.Kinds)-1], s.random.Float64()
	for _, k := range s.p.Kinds {
		if draw < k.Share {
			kind = k
			break
		}
		draw -= k.Share
	}
	share := 0.0
	if s.random.Float64() < kind.ParallelShare {
		share = kind.ParallelFrom + s.random.Float64()*(kind.ParallelTo-kind.ParallelFrom)
	}
	seconds := min(s.pareto(kind.Seconds, kind.SecondsAlpha), longestSeconds)
	a.serial, a.parallel = seconds*(1-share), seconds*share
	a.memory = min(s.pareto(kind.MemoryMiB, kind.MemoryAlpha), s.mostMemory())
	a.Mnemonic = kind.Name
}

func (s *simStream) pareto(least, alpha float64) float64 {
	return least * math.Pow(1-s.random.Float64(), -1/alpha)
}

// drift changes an action from one day to the next. An action that jumps keeps its kind.
func (s *simStream) drift(a *simAction) {
	if s.random.Float64() < s.p.JumpsPerDay {
		factor := math.Exp(s.random.NormFloat64())
		a.serial, a.memory = a.serial*factor, min(a.memory*math.Exp(s.random.NormFloat64()), s.mostMemory())
		a.parallel *= factor * math.Exp(s.random.NormFloat64())
	}
	factor := math.Exp(s.random.NormFloat64() * s.p.DriftPerDay)
	a.serial, a.parallel = a.serial*factor, a.parallel*factor
}
