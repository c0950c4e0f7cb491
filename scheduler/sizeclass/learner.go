package sizeclass

import (
	"fmt"
	"time"
)

// A Learner receives the end of a run that Select, Failed or Overdue asked for, or that was Moved.
// Exactly one of Succeeded, Failed and Abandoned must be called, once.
type Learner struct {
	options *Options
	action  Action
	choice  Choice
	// before are the runs on smaller classes that led to this one.
	before []run
	used   bool
}

// use marks types that may be used only once.
func use(used *bool) {
	if *used {
		panic("sizeclass: used twice")
	}
	*used = true
}

// Choice returns the choice that led to the run.
func (l *Learner) Choice() Choice { return l.choice }

// Succeeded is for a successful run, whose result is final.
func (l *Learner) Succeeded(r Run) *Lesson {
	use(&l.used)
	return &Lesson{action: l.action, runs: l.with(Succeeded, r)}
}

// Abandoned is for an action that was cancelled, preempted or lost with its worker, or that ended
// for reasons other than its size class. Nothing is learned.
func (l *Learner) Abandoned() { use(&l.used) }

// Moved is for a run that began on another class than the chosen one, with the action's own
// timeout. It returns the Learner for that class.
func (l *Learner) Moved(class uint32) *Learner {
	use(&l.used)
	return &Learner{
		options: l.options, action: l.action, before: l.before,
		choice: Choice{Class: class, Timeout: l.action.Timeout, Probability: 1, Reason: l.choice.Reason},
	}
}

// A Failure is a run that did not succeed.
type Failure struct {
	Now time.Time
	// Outcome is TimedOut, Failed or OutOfMemory.
	Outcome Outcome
	Run     Run
	// Largest is the largest class that exists now.
	Largest uint32
}

// A Verdict interprets a failure. If Retry is set, the action must run again, by Retry.Choice, and
// its client must not notice; otherwise the result is final and Lesson must be learned.
type Verdict struct {
	Retry  *Learner
	Lesson *Lesson
}

// Failed decides whether a failure is final.
func (l *Learner) Failed(f Failure) Verdict {
	use(&l.used)
	if f.Outcome < TimedOut || f.Outcome > OutOfMemory {
		panic(fmt.Sprintf("sizeclass: no failure: %s", f.Outcome))
	}
	seen := l.with(f.Outcome, f.Run)
	if l.choice.Class < f.Largest {
		reason := fmt.Sprintf("%s on class %d", f.Outcome, l.choice.Class)
		return Verdict{Retry: l.next(f.Largest, seen, reason)}
	}
	lesson := &Lesson{action: l.action, failed: f.Now}
	for _, r := range seen {
		// Other runs with failures failed for other reasons.
		if r.outcome == OutOfMemory && r.class < l.choice.Class {
			lesson.runs = append(lesson.runs, r)
		}
	}
	return Verdict{Lesson: lesson}
}

// Overdue is for a run that took Choice.Hedge. It returns the Learner of a second run, on the
// largest class, which starts now. The first success wins, and the other run is stopped and
// Abandoned. A failure of the second run is final. If the first run fails, it is Abandoned, too. Do
// not call Overdue while no worker of the largest class is free; instead, stop the run as if it had
// timed out.
func (l *Learner) Overdue(largest uint32) *Learner {
	reason := fmt.Sprintf("took longer than %s on class %d", l.choice.Hedge, l.choice.Class)
	return l.next(largest, l.with(TimedOut, Run{Duration: l.choice.Hedge}), reason)
}

// next returns the Learner of a run on the largest class.
func (l *Learner) next(largest uint32, before []run, reason string) *Learner {
	return &Learner{
		options: l.options, action: l.action, before: before,
		choice: Choice{Class: largest, Timeout: l.action.Timeout, Probability: 1, Reason: reason},
	}
}

func (l *Learner) with(o Outcome, r Run) []run {
	return append(l.before[:len(l.before):len(l.before)], run{class: l.choice.Class, outcome: o, Run: r.sane()})
}
