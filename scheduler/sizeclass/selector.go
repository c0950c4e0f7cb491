package sizeclass

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/proto/runs"
)

// A Class is a size class on which an action can run: its workers are connected, or will come when
// they are needed.
type Class struct {
	Size uint32
	// Wait is how long the action is expected to wait for a worker; 0 if one is free.
	Wait time.Duration
}

// Conditions are the inputs of Select besides the records of the action.
type Conditions struct {
	Now time.Time
	// Classes are in ascending order; there is at least one.
	Classes []Class
	// CanHedge says that the caller can run an action twice at once.
	CanHedge bool
}

func (c Conditions) largest() Class { return c.Classes[len(c.Classes)-1] }

// A Choice is the class on which an action should run.
type Choice struct {
	Class uint32
	// Expected is the expected duration, 0 if it is unknown.
	Expected time.Duration
	// Timeout is when to stop the run, counted from its start.
	Timeout time.Duration
	// Hedge is when to call Learner.Overdue if it is still running; 0: never.
	Hedge time.Duration
	// Probability is the estimated probability that the run is acceptable.
	Probability float64
	// Reason is for people.
	Reason string
}

// A Selector chooses the class on which an action starts. If the classes change before the action
// has run, Select may be called again; the earlier Learner is then Abandoned.
type Selector struct {
	options    *Options
	action     Action
	statistics statistics
	// runs are its own, in order of time if ordered, and kin those of actions that are like it, if
	// there are none.
	runs, kin []run
	ordered   bool
	draw      float64 // the random value: from 0 to below 1
}

// Select chooses a class. It does not wait, and depends only on its arguments and on the records
// that Analyze has read.
func (s *Selector) Select(c Conditions) (Choice, *Learner) {
	choice := s.choose(c, s.assess(c))
	return choice, &Learner{options: s.options, action: s.action, choice: choice}
}

// An Assessment is the evaluation of one class.
type Assessment struct {
	Class
	// Succeeded, TimedOut and Failed are the numbers of these outcomes, and Median is the median
	// duration of the successes.
	Succeeded, TimedOut, Failed int
	Median                      time.Duration
	// Runs are these outcomes, the oldest first.
	Runs []*runs.Run
	// Expected is the expected duration of a run, 0 if it is unknown.
	Expected time.Duration
	// Acceptable is how long it may take by the rule, 0 for the largest class. Timeout is when it
	// would be stopped, or hedged, if nothing were known of runs there; Patience is when it is.
	Acceptable, Timeout, Patience time.Duration
	// Probability is the probability of an acceptable run, 0 if the class is ruled out.
	Probability float64
	// Score combines the expected delay and cost; smaller is better, and the largest class has 1 if
	// no action waits. 0 if unknown.
	Score float64
	// RuledOut is the reason why the class cannot be chosen; empty if it can.
	RuledOut string
}

// Assess returns the evaluation of each class, in ascending order, and the choice of Select. It
// includes classes that have outcomes but no workers, as ruled out; if there are only such classes,
// there is no Choice.
func (s *Selector) Assess(c Conditions) (list []Assessment, choice Choice) {
	if len(c.Classes) > 0 {
		list = s.assess(c)
		choice = s.choose(c, list)
	}
	for class := range s.statistics.runs {
		if !slices.ContainsFunc(c.Classes, func(there Class) bool { return there.Size == class }) {
			a := Assessment{Class: Class{Size: class}, RuledOut: "no worker"}
			s.count(&a)
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b Assessment) int { return cmp.Compare(a.Size, b.Size) })
	return list, choice
}

// LastFailure returns when the action last failed on the largest class, zero if never.
func (s *Selector) LastFailure() time.Time { return s.statistics.failed }

func (s *Selector) assess(c Conditions) []Assessment {
	if len(c.Classes) == 0 {
		panic("sizeclass: there is no class to choose from")
	}
	largest := c.largest()
	f := newForecast(s, c)
	list := make([]Assessment, len(c.Classes))
	for i, class := range c.Classes {
		wait := class.Wait
		if s.options.Plain {
			wait = 0
		}
		trials := f.trials(class.Size)
		a := Assessment{Class: class, Timeout: f.timeout(class.Size), Patience: f.patience(class.Size), Probability: 1}
		s.count(&a)
		a.Expected = expected(trials, f.alike)
		a.Score, _ = f.score(class.Size, trials, wait)
		if class.Size < largest.Size {
			a.Acceptable = f.acceptable(class.Size, f.base)
			a.Probability = f.probability(class.Size, trials, f.waitLargest-wait)
			a.RuledOut = f.ruledOut(class.Size)
		} else if a.Score > 0 || f.base > 0 {
			a.Score = 1
		}
		if a.RuledOut != "" {
			a.Probability = 0
		}
		list[i] = a
	}
	return list
}

// count adds the outcomes on a class.
func (s *Selector) count(a *Assessment) {
	var durations []time.Duration
	for _, r := range s.statistics.runs[a.Size] {
		a.Runs = append(a.Runs, r.message())
		switch r.outcome {
		case Succeeded:
			a.Succeeded++
			durations = append(durations, r.Duration)
		case TimedOut:
			a.TimedOut++
		default:
			a.Failed++
		}
	}
	a.Median = medianDuration(durations)
}

// expected is the median of successes, 0 if that is not known.
func expected(trials []trial, alike bool) time.Duration {
	var durations []time.Duration
	for _, t := range trials {
		if t.outcome == Succeeded && !t.bound && !alike {
			durations = append(durations, t.Duration)
		}
	}
	return medianDuration(durations)
}

// ruledOut returns why an action cannot run on a class, empty if it can.
func (f *forecast) ruledOut(class uint32) string {
	if f.options.Plain || f.alike {
		return ""
	}
	for _, r := range f.runs {
		if r.outcome == OutOfMemory && class <= r.class {
			return fmt.Sprintf("ran out of memory on class %d", r.class)
		}
	}
	return ""
}

// choose picks one of the assessed classes.
func (s *Selector) choose(c Conditions, list []Assessment) Choice {
	largest := list[len(list)-1]
	ago := c.Now.Sub(s.statistics.failed)
	// A failure in the future comes from a clock that was ahead, by little or by years.
	boosted := !s.statistics.failed.IsZero() && ago.Abs() < s.options.FailureCache
	switch {
	case len(list) == 1:
		return s.choice(c, largest, "the only class")
	case boosted:
		return s.choice(c, largest, fmt.Sprintf("failed on the largest class %s ago", max(ago, 0).Round(time.Second)))
	}
	least := !s.options.Plain && largest.Score > 0
	draw := s.draw
	for _, a := range list[:len(list)-1] {
		switch {
		case a.RuledOut != "", least && a.Score > 0:
		case draw < a.Probability:
			return s.choice(c, a, fmt.Sprintf("drawn: acceptable with a probability of %.2f", a.Probability))
		default:
			draw = (draw - a.Probability) / (1 - a.Probability)
		}
	}
	if !least {
		return s.choice(c, largest, "drawn: no smaller class")
	}
	best, of := leastOf(list), "its own runs"
	if len(s.runs) == 0 {
		of = "runs of actions like it"
	}
	return s.choice(c, best, fmt.Sprintf("least delay and cost by %s: %.2f of the largest class's", of, best.Score))
}

// nearly is the ratio of two scores whose difference says nothing: what is known is not that exact.
const nearly = 1.05

// leastOf returns the class with the least score, or a larger one whose score is nearly as small and
// where the action is expected to end earlier. The last of list has a score.
func leastOf(list []Assessment) Assessment {
	var scored []Assessment
	for _, a := range list {
		if a.RuledOut == "" && a.Score > 0 {
			scored = append(scored, a)
		}
	}
	least := slices.MinFunc(scored, func(a, b Assessment) int { return cmp.Compare(a.Score, b.Score) })
	best := least
	for _, a := range scored {
		if a.Size > best.Size && a.Score <= least.Score*nearly && float64(a.Wait+a.Expected)*nearly < float64(best.Wait+best.Expected) {
			best = a
		}
	}
	return best
}

func (s *Selector) choice(c Conditions, a Assessment, reason string) Choice {
	choice := Choice{
		Class: a.Size, Expected: a.Expected, Timeout: a.Patience, Probability: a.Probability, Reason: reason,
	}
	if !s.options.Plain && c.CanHedge && a.Size < c.largest().Size && a.Patience < s.action.Timeout {
		choice.Hedge, choice.Timeout = a.Patience, s.action.Timeout
	}
	return choice
}
