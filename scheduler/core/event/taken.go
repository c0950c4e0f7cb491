package event

import "github.com/forerunner-build/forerunner/scheduler/core/request"

// A Taken describes a run that was taken from its worker before it had ended there, or that its
// worker has given up.
type Taken struct {
	*request.Operation
	Worker string
	Why    Why
}

// A Why is the reason why a run was taken from its worker.
type Why uint8

// Reasons why a run was taken.
const (
	// ForMinimum: it yields to an instance below its minimum. OverMaximum: an operator has stopped
	// the runs of an instance above its maximum. Both are queued again.
	ForMinimum Why = iota
	OverMaximum
	// Unwanted: no client waits for it, and others wait for the worker. It is queued again.
	Unwanted
	// Lost: the worker did not call in time. Moved: the worker came back with another platform or
	// size class. Restarted: the worker came back from a restart, without it. Dropped: the worker
	// reports something else, without its end. Unconfirmed: the worker has never reported it. All
	// are queued again, until there were tuning.Config.MaxAttempts.
	Lost
	Moved
	Restarted
	Dropped
	Unconfirmed
	// Failed: the worker could not run it; see Retry.
	Failed
	// Overtaken: another run of the same action has ended first.
	Overtaken
	// Killed: an operator ended the operation. Cancelled: a client did. Abandoned: no client came
	// back for it.
	Killed
	Cancelled
	Abandoned
	whys
)

// whyWords are a label for metrics, and a text for people.
var whyWords = [whys]struct{ label, text string }{
	ForMinimum:  {"minimum", "it yields to an instance below its minimum"},
	OverMaximum: {"maximum", "its instance was above its maximum"},
	Unwanted:    {"unwanted", "no client waits for it, and others wait for the worker"},
	Lost:        {"lost", "its worker did not call in time"},
	Moved:       {"moved", "its worker came back with another platform or size class"},
	Restarted:   {"restarted", "its worker has restarted"},
	Dropped:     {"dropped", "its worker no longer reports it"},
	Unconfirmed: {"unconfirmed", "its worker has never reported it"},
	Failed:      {"failed", "its worker could not run it"},
	Overtaken:   {"overtaken", "another run of the action has ended first"},
	Killed:      {"killed", "an operator has killed the operation"},
	Cancelled:   {"cancelled", "a client has cancelled the operation"},
	Abandoned:   {"abandoned", "no client came back for it"},
}

// String returns the reason for people.
func (w Why) String() string { return whyWords[w].text }

// Label returns the reason as a word for metrics.
func (w Why) Label() string { return whyWords[w].label }

// Whys returns all reasons.
func Whys() []Why {
	all := make([]Why, whys)
	for i := range all {
		all[i] = Why(i)
	}
	return all
}
