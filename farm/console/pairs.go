package console

import "github.com/forerunner-build/forerunner/proto/names"

// mostPairs limits the workers whose last action is kept. A farm on one machine has fewer.
const mostPairs = 1 << 12

// pairs recognize the second line of an action: a scheduler and its worker each log the end, and
// the terminal shows one. If only one of them logs an action, it has no second line: another
// program's worker ran it, it was given up, or an operator stopped it.
type pairs map[string]end // by the worker and its position: its last

// An end is that of an action, as the worker or the scheduler logs it.
type end struct {
	action, outcome string
	isOperation     bool
}

// isSecond reports whether the other line has been written; otherwise it keeps this one.
func (p pairs) isSecond(v values, isOperation bool) bool {
	worker := v.text(names.WorkerField)
	if worker == "" {
		return false
	}
	worker += " " + v.text(names.PositionField)
	this := end{action: v.text(names.ActionField), outcome: outcomeOf(v), isOperation: isOperation}
	last, known := p[worker]
	if known && last.action == this.action {
		switch {
		case isOperation && !last.isOperation && last.outcome == this.outcome:
			return true // and so are those of other operations that shared the run
		case !isOperation && last.isOperation && this.outcome == cancelled:
			return true // the scheduler stopped it, and gave the reason
		}
	}
	if !known && len(p) >= mostPairs {
		clear(p)
	}
	p[worker] = this
	return false
}

// outcomeOf is an outcome in words that both have: "ok", "failed", "cancelled", or the code of an
// error.
func outcomeOf(v values) string {
	switch outcome := v.text(names.OutcomeField); outcome {
	case "ok", "succeeded", "cached": // by the worker, which reused a former run
		return ok
	case "exit_code", "out_of_memory", "failed":
		return failed
	case "Canceled", "cancelled":
		return cancelled
	case "error":
		return v.text(names.CodeField)
	default:
		return outcome
	}
}
