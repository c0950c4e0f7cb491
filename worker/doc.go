// Package worker takes actions from a scheduler and runs them. A Worker has n
// positions. Each position is one worker to the scheduler. It takes one action at a
// time through the stages of the pipeline, which all positions share:
//
//	match → input fetch → execute → report
//
// action.go has the life of an action from start to report, run.go has one run of its command. Both
// use packages that know nothing of actions:
//
//	pipeline   a permit for each stage, and a slot
//	diskguard  is there enough disk space?
//	ahead      prefetches files that similar actions read
//	policy     arguments, environment, user, network
//	reuse      may the result of an earlier run be reused?
//	inputs     builds the view of the input root, finds blobs that storage lacks
//	live       shows the output of a running command
//	usage      measures the resources of the command
//	outputs    finds, hashes, stores and uploads outputs
//	vouching   verifies all content that the command used
//	fault      maps errors to statuses for the client
//	historical stores results that are not cached for Buildbarn's pages
//
// The package decides nothing about an action: the scheduler chooses the timeout, the retries and
// the size class. The package writes a result to the action cache only if the command ended by
// itself with exit code 0. It answers only when all content that the command may have read is
// verified; if some was wrong, it runs the command again (again.go). It reuses the result of an
// earlier run only if this is enabled (Options.Reuse) and package reuse has proof.
//
// Worker.Run owns every goroutine with work: one for each position, one for the position's running
// action, one that starts the positions beyond the slots when it knows that the scheduler is
// Forerunner's, one that receives requests for live output and one for each stream of it,
// and one that waits for the usage of an ended command. With Options.Crew a goroutine whose action
// has ended waits for another (package crew). The fields of a position belong to its
// goroutine, except the stage of the running action, which has a lock (task.mu). Nobody
// holds more than one lock, or holds a lock while anything blocks.
package worker
