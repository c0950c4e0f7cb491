// Package worker takes actions from a scheduler and runs them. A Worker has n
// positions; each is one identity towards the scheduler and takes one action at a
// time through the stages of the pipeline, which it shares with the others:
//
//	match → input fetch → execute → report
//
// pipeline.go bounds the actions in each stage; action.go tells the life of an
// action from start to report.
//
// The package decides nothing about an action: the timeout, the retries and the
// size class are the scheduler's. It writes to the action cache only what ended
// by itself with exit code 0, and answers only when all that the command may have read
// is vouched for: else it runs the command again (vouch.go). A former run's result stands for another run only
// where that is asked for (Options.Reuse) and package reuse has proof.
//
// Worker.Run owns every goroutine: one for each position, one for the action that
// the position runs, one that is asked for output and one for each stream of it
// that is shown, and one that waits for what an ended command used. A position's fields belong to its goroutine, but for
// the stage of the running action, which has a lock of its own (task.mu). Nobody
// holds more than one lock, nor one while anything blocks.
package worker
