// Package pipeline limits how many actions are in each stage: input fetch, execute, report. An
// action holds a permit for exactly one stage, and gets the next permit before it releases the
// present one. So a full stage stops the stage before it and, in the end, the calls for work: no
// action is accepted without a permit.
//
// It knows launchers and digests, and nothing else of actions. It has no goroutines; Pipeline.mu is
// never held while anything blocks.
package pipeline
