// Package pipeline bounds how many actions are in each stage: input fetch, execute, report. An
// action holds a permit for exactly one stage, and gets one for the next before it gives up its
// own. So a stage that is full holds up the one before it and, in the end, the calls for work:
// nothing is accepted that has no permit.
//
// It knows launchers and digests, and nothing else of actions. It has no goroutines; Pipeline.mu is
// never held while anything blocks.
package pipeline
