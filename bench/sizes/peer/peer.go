package peer

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// The recommended settings.
const (
	timeoutMultiplier = 1.5
	minTimeout        = 10 * time.Second
	failureCache      = 24 * time.Hour
	history           = 32
	convergence       = 0.002
)

// An Analyzer has the outcomes of all actions.
type Analyzer struct {
	exponent float64
	random   *rand.Rand
	actions  map[string]*record
}

// A record has the outcomes of one action.
type record struct {
	classes map[uint32][]outcome // the oldest first
	failed  time.Time
}

// An outcome is the end of a run on one class.
type outcome struct {
	seconds  float64
	timedOut bool
	failed   bool
}

// New returns an Analyzer without outcomes.
func New(exponent float64, seed uint64) *Analyzer {
	return &Analyzer{exponent: exponent, random: rand.New(rand.NewPCG(seed, 1)), actions: map[string]*record{}}
}

// A Start is the class on which an action runs first.
type Start struct {
	Class   uint32
	Timeout time.Duration
	// Train is the class on which the action runs in the background after a success; 0: none.
	Train uint32
}

// Choose returns the start of an action. classes are in ascending order; timeout is the action's
// own.
func (a *Analyzer) Choose(action string, classes []uint32, timeout time.Duration, now time.Time) Start {
	r, last := a.record(action), len(classes)-1
	start := Start{Class: classes[last], Timeout: timeout}
	if !r.failed.IsZero() && now.Sub(r.failed) <= failureCache {
		return start
	}
	draw := a.random.Float64()
	for i, o := range a.options(r, classes, timeout) {
		if draw -= o.chance; draw >= 0 {
			continue
		}
		if o.background {
			start.Train = classes[i]
		} else if i < last {
			start.Class, start.Timeout = classes[i], o.timeout
		}
		return start
	}
	return start
}

// Learn adds the outcome of a run. For a success timedOut and failed are false.
func (a *Analyzer) Learn(action string, class uint32, took time.Duration, timedOut, failed bool) {
	r := a.record(action)
	list := append(r.classes[class], outcome{took.Seconds(), timedOut, failed})
	r.classes[class] = list[max(0, len(list)-history):]
}

// Failed records that an action failed on the largest class.
func (a *Analyzer) Failed(action string, now time.Time) { a.record(action).failed = now }

// TrainingTimeout returns the timeout of a background run.
func (a *Analyzer) TrainingTimeout(action string, class, largest uint32, timeout time.Duration) time.Duration {
	median := medianOf(successes(a.record(action).classes[largest]))
	_, t := a.limits(median, float64(largest)/float64(class), timeout)
	return t
}

func (a *Analyzer) record(action string) *record {
	r := a.actions[action]
	if r == nil {
		r = &record{classes: map[uint32][]outcome{}}
		a.actions[action] = r
	}
	return r
}

// An option is a class on which an action may start.
type option struct {
	chance     float64
	timeout    time.Duration
	background bool
}

// options returns the options in the order of classes, up to the first one that is certain.
func (a *Analyzer) options(r *record, classes []uint32, timeout time.Duration) []option {
	last := len(classes) - 1
	largest := successes(r.classes[classes[last]])
	list := make([]option, len(classes))
	if len(largest) == 0 {
		i := slices.IndexFunc(classes[:last], func(c uint32) bool { return len(r.classes[c]) == 0 })
		if i < 0 {
			i = last
		}
		list[i] = option{chance: 1, timeout: min(timeout, minTimeout)}
		return list
	}
	sets := make([]set, len(classes))
	sets[last].times = largest
	background := true
	for i, class := range classes[:last] {
		ratio := float64(classes[last]) / float64(class)
		acceptable, limit := a.limits(medianOf(largest), ratio, timeout)
		s := setOf(r.classes[class], acceptable, math.Pow(ratio, a.exponent))
		if n := len(s.times) + s.failures; n > 0 {
			background = s.failures > len(s.times)
		} else if background {
			list[i] = option{chance: 1, background: true}
			return list
		}
		sets[i], list[i] = s, option{timeout: limit, background: background}
	}
	for i, chance := range ranks(sets) {
		list[i].chance = chance
	}
	list[last].background = false
	return list
}

// limits returns the acceptable seconds on a class that is ratio times smaller than the largest,
// and the timeout there.
func (a *Analyzer) limits(median, ratio float64, timeout time.Duration) (float64, time.Duration) {
	acceptable := median * math.Pow(ratio, a.exponent)
	limit := min(max(acceptable*timeoutMultiplier, minTimeout.Seconds()), timeout.Seconds())
	return min(acceptable, limit/timeoutMultiplier), time.Duration(limit * float64(time.Second))
}

func successes(list []outcome) (times []float64) {
	for _, o := range list {
		if !o.timedOut && !o.failed {
			times = append(times, o.seconds)
		}
	}
	return times
}

// medianOf sorts a list, which must not be empty, and returns the median.
func medianOf(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// A set has the outcomes on one class, relative to the largest class.
type set struct {
	times    []float64
	failures int
}

func setOf(list []outcome, acceptable, factor float64) (s set) {
	for _, o := range list {
		switch {
		case o.timedOut && o.seconds < acceptable: // undecided: it might have succeeded in time
		case o.failed, o.timedOut, o.seconds >= acceptable:
			s.failures++
		default:
			s.times = append(s.times, o.seconds/factor)
		}
	}
	return s
}

// faster returns the probability that a run of s is faster than a run of o.
func (s set) faster(o set) float64 {
	n, m := float64(len(s.times)+s.failures), float64(len(o.times)+o.failures)
	points := 1 + m + 2*float64(len(s.times)*o.failures) + float64(s.failures*o.failures)
	for _, a := range s.times {
		for _, b := range o.times {
			switch {
			case a < b:
				points += 2
			case a == b:
				points++
			}
		}
	}
	return points / (2 + n + m + 2*n*m)
}

// ranks returns the stationary distribution of a random walk over the classes. Each step draws a
// class evenly, and goes there if that class is faster.
func ranks(sets []set) []float64 {
	n := len(sets)
	p := make([]float64, n)
	for i := range p {
		p[i] = 1 / float64(n)
	}
	moves := make([][]float64, n)
	for i := range moves {
		moves[i] = make([]float64, n)
		for j := range moves {
			if i != j {
				moves[i][j] = sets[j].faster(sets[i]) / float64(n-1)
			}
		}
	}
	for moved := 1.; moved >= convergence; {
		next := slices.Clone(p)
		for i := range p {
			for j := range p {
				next[i] -= p[i] * moves[i][j]
				next[j] += p[i] * moves[i][j]
			}
		}
		moved = 0
		for i := range p {
			moved += math.Abs(next[i] - p[i])
		}
		p = next
	}
	return p
}
