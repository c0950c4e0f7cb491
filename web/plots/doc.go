// Package plots samples the farm, keeps the samples at falling resolution, and draws them: waiting
// actions, slots and workers of the whole farm, and the slots of each worker.
//
// A Sampler takes a sample of queues every 10 seconds and of workers every minute, by the
// scheduler's own services, and has Plots keep them as hints. Everything is bounded: steps, workers
// that have a line, bytes of what is kept.
//
// The package refuses to say anything of a time of which there was no sample. It has no goroutines:
// Sampler.Run is one of its caller's. Plots.mu is not held while anything is asked or kept.
package plots
