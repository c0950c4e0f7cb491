package sizeclass

import (
	"math"
	"time"
)

// A trial is a run of the action on a class, observed or inferred.
type trial struct {
	run
	// largest is how long the same would take on the largest class, 0 if that is not known.
	largest time.Duration
	// bound: it takes no longer than that, maybe less.
	bound bool
}

// A forecast is the knowledge about an action, relative to the largest class.
type forecast struct {
	options *Options
	// limit is the client's timeout.
	limit   time.Duration
	largest uint32
	// spread is how many times smaller the smallest class is than the largest.
	spread float64
	// waitLargest is for a worker of the largest class; 0 to ignore it.
	waitLargest time.Duration
	// runs are the evidence, oldest first: the action's own, or those of similar actions.
	runs  []run
	alike bool
	share float64 // parallelShare of these and older ones
	// base is the action's duration on the largest class, 0 if unknown; atMost is the same or an
	// upper limit of it.
	base, atMost time.Duration
}

// window is how many of the latest runs count, on any class. As many runs of each class are kept,
// because older ones may still show how parallel an action is.
func window(history int) int { return (history + 1) / 2 }

func newForecast(s *Selector, c Conditions) *forecast {
	largest := c.largest()
	f := &forecast{options: s.options, limit: s.action.Timeout, largest: largest.Size, runs: s.runs}
	f.spread = f.ratio(c.Classes[0].Size)
	if !s.options.Plain {
		f.waitLargest = largest.Wait
	}
	if len(f.runs) == 0 {
		f.runs, f.alike = s.kin, true
	}
	f.share = parallelShare(f.runs)
	if s.ordered || f.alike {
		f.runs = last(f.runs, window(s.options.History))
	}
	var there, bounds []time.Duration
	for _, r := range f.runs {
		t, ok := f.infer(r, f.largest)
		switch {
		case !ok || t.outcome != Succeeded:
		case t.bound:
			bounds = append(bounds, t.Duration)
		default:
			there = append(there, t.Duration)
		}
	}
	if len(there) == 0 {
		// They may be too old to be among the last runs.
		for _, r := range s.statistics.runs[f.largest] {
			if r.outcome == Succeeded {
				there = append(there, r.Duration)
			}
		}
	}
	f.base, f.atMost = medianDuration(there), medianDuration(there)
	if f.base == 0 {
		f.atMost = medianDuration(bounds)
	}
	if f.alike {
		// Durations of similar actions say little; the longest is a rough limit.
		f.base = 0
		for _, d := range there {
			f.atMost = max(f.atMost, d)
		}
	}
	return f
}

// infer returns the trial of r on a class; it is false if r lacks the data.
func (f *forecast) infer(r run, class uint32) (trial, bool) {
	t := trial{run: r}
	t.class = class
	switch beyond := !f.options.Plain; {
	case class == r.class:
		return t, true
	case r.outcome != Succeeded:
		return t, beyond && class < r.class
	case beyond && (r.outgrows(class) || class < r.class && r.pressed()):
		t.outcome, t.Duration = OutOfMemory, r.Duration/2
		return t, true
	default:
		if beyond && class > r.class {
			r = r.relaxed()
			t.Duration = r.Duration
		}
		n := r.cpus() * classOf(class) / classOf(r.class)
		if w, ok := f.work(r, n); ok && beyond {
			t.Duration = w.on(n)
			return t, true
		}
		t.bound = true
		return t, beyond && class > r.class
	}
}

// work returns the work of r, from its own data or from other runs, if n CPUs matter: with one CPU
// or less, the parallel share does not matter. A run on one CPU that was throttled had
// threads for more: so much of it is parallel at least. One that was not may still have as many threads
// as there are CPUs.
func (f *forecast) work(r run, n float64) (work, bool) {
	if w, ok := r.work(); ok {
		return w, true
	}
	share := f.share
	if least := r.Throttled.Seconds() / r.Duration.Seconds(); r.Throttled > 0 && least > tight && r.cpus() >= 1 {
		share = max(share, least)
	}
	if share < 0 && n <= onlyOne {
		share = 0
	}
	if share < 0 || r.CPU <= 0 || r.cpus() > onlyOne {
		return work{}, false
	}
	return r.withShare(share), true
}

// trials returns the trials of a class, oldest first.
func (f *forecast) trials(class uint32) (list []trial) {
	for _, r := range f.runs {
		t, ok := f.infer(r, class)
		if !ok {
			continue
		}
		t.largest = f.base
		if l, ok := f.infer(r, f.largest); f.alike && ok && l.outcome == Succeeded && !l.bound {
			t.largest = l.Duration
		}
		list = append(list, t)
	}
	return list
}

// ratio is how many times smaller a class is than the largest.
func (f *forecast) ratio(class uint32) float64 { return classOf(f.largest) / classOf(class) }

// leastAcceptable is the acceptable duration while nothing is known of the largest class.
func (f *forecast) leastAcceptable() time.Duration {
	return time.Duration(float64(f.options.MinTimeout) / f.options.TimeoutMultiplier)
}

// acceptable is how long an action may take on a class if it takes largest on the largest one.
func (f *forecast) acceptable(class uint32, largest time.Duration) time.Duration {
	if largest == 0 {
		return f.leastAcceptable()
	}
	return acceptable(largest, f.ratio(class), f.exponent(largest))
}

// exponent is Options.Exponent for short actions. It is less for long ones: so much that an action
// which takes largest on the largest class takes at most Options.MaxDelay longer on the smallest.
func (f *forecast) exponent(largest time.Duration) float64 {
	x := f.options.Exponent
	if f.options.Plain || f.spread <= 1 || largest <= 0 {
		return x
	}
	return min(x, math.Log1p(f.options.MaxDelay.Seconds()/largest.Seconds())/math.Log(f.spread))
}

// timeout is how long an action may run on a class. It never exceeds the client's, and on smaller
// classes it is never shorter than on larger ones. Stopping a run is useless if the action then
// waits for a worker of the largest class.
func (f *forecast) timeout(class uint32) time.Duration {
	if class >= f.largest {
		return f.limit
	}
	d := float64(f.acceptable(class, f.atMost))*f.options.TimeoutMultiplier + float64(f.waitLargest)
	return min(max(time.Duration(min(d, float64(maxDuration))), f.options.MinTimeout), f.limit)
}

// patience is when a run on a class is stopped, or gets a second one beside it. While it is not
// known how the action runs there, that is the timeout of the class. If it has succeeded there before, a
// run that takes long most likely has more to do, and would have it on the largest class too. Then it
// gets as long as if it were as fast on the largest class as its CPUs allow. If it took even longer than
// that, and ended by itself, waiting for it is better than a second run.
func (f *forecast) patience(class uint32) time.Duration {
	limit := f.timeout(class)
	if f.options.Plain || f.alike || f.atMost == 0 || limit >= f.limit {
		return limit
	}
	later := float64(f.atMost)*f.ratio(class)*f.options.TimeoutMultiplier + float64(f.waitLargest)
	late := min(max(time.Duration(min(later, float64(maxDuration))), limit), f.limit)
	within, beyond, stopped := 0, 0, 0
	for _, r := range f.runs {
		switch {
		case r.class != class:
		case r.outcome != Succeeded:
			stopped++
		case r.Duration <= late:
			within++
		default:
			beyond++
		}
	}
	switch {
	case beyond > stopped:
		return f.limit
	case within > stopped:
		return late
	}
	return limit
}

// probability is that of an acceptable run on a class, by Laplace's rule of succession. With
// Queues, a shorter wait for a worker permits a longer run, and vice versa.
func (f *forecast) probability(class uint32, trials []trial, lessWait time.Duration) float64 {
	n, k := 0, 0
	for _, t := range trials {
		limit := f.acceptable(class, t.largest) + lessWait
		switch {
		case t.outcome == Succeeded && t.Duration <= limit:
			n, k = n+1, k+1
		case t.outcome == Succeeded && t.bound, t.outcome == TimedOut && t.Duration < limit:
		default:
			n++
		}
	}
	return float64(k+1) / float64(n+2)
}

// score returns the expected delay^(1-x)·cost^x on a class over that on the largest; it is false
// if that is not known. wait is for a worker.
func (f *forecast) score(class uint32, trials []trial, wait time.Duration) (float64, bool) {
	sum, n, limit := 0.0, 0, f.patience(class)
	for _, t := range trials {
		early := t.outcome == TimedOut && t.Duration < f.acceptable(class, t.largest)
		if t.bound || t.largest == 0 || early {
			continue
		}
		delay, cost := f.outlook(t, wait, limit)
		largest, x := t.largest.Seconds(), f.exponent(t.largest)
		sum += math.Pow(delay/(f.waitLargest.Seconds()+largest), 1-x) *
			math.Pow(cost/(classOf(f.largest)*largest), x)
		n++
	}
	if n == 0 {
		return 0, false
	}
	return sum / float64(n), true
}

// outlook returns the cost of a trial in seconds of delay and in seconds of workers times their
// classes, including a run on the largest class if necessary. patience is that with its class.
func (f *forecast) outlook(t trial, wait, patience time.Duration) (delay, cost float64) {
	class, largest := classOf(t.class), classOf(f.largest)
	limit, again := patience.Seconds(), t.largest.Seconds()
	first := min(t.Duration.Seconds(), limit)
	delay = wait.Seconds() + first
	if t.class >= f.largest || t.outcome == Succeeded && t.Duration.Seconds() <= limit {
		return delay, class * first
	}
	if t.outcome == Succeeded && !f.options.Plain && f.waitLargest == 0 {
		both := min(t.Duration.Seconds()-limit, again)
		return delay + both, class*(first+both) + largest*both
	}
	return delay + f.waitLargest.Seconds() + again, class*first + largest*again
}
