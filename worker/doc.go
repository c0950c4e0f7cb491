// Package worker takes actions from a scheduler and runs them. A Worker has n
// positions; each is one identity towards the scheduler and takes one action at a
// time through the stages of the pipeline, which it shares with the others:
//
//	match → input fetch → execute → report
//
// action.go tells the life of an action from start to report, run.go that of one run of its command. They walk
// through rooms that know nothing of actions, each entered once:
//
//	pipeline   a permit for each stage, and a slot
//	diskguard  whether the disk has room
//	ahead      what similar actions read is fetched before it is asked for
//	policy     arguments, environment, user, network
//	reuse      whether a former run's result stands for this one
//	inputs     how the input root reads, and what storage lacks
//	live       what the command prints, for who asks
//	usage      what the command used
//	outputs    what it made: found, hashed, stored, uploaded
//	vouching   whether all that it used was right
//	fault      what the client is told
//	historical what pages of Buildbarn show of a result that is not cached
//
// The package decides nothing about an action: the timeout, the retries and the
// size class are the scheduler's. It writes to the action cache only what ended
// by itself with exit code 0, and answers only when all that the command may have read
// is vouched for: else it runs the command again (again.go). A former run's result stands for another run only
// where that is asked for (Options.Reuse) and package reuse has proof.
//
// Worker.Run owns every goroutine: one for each position, one for the action that
// the position runs, one that is asked for output and one for each stream of it
// that is shown, and one that waits for what an ended command used. A position's fields belong to its goroutine, but for
// the stage of the running action, which has a lock of its own (task.mu). Nobody
// holds more than one lock, nor one while anything blocks.
package worker
