// Package plots samples the farm, keeps the samples at falling resolution, and draws them: waiting
// actions, slots and workers of the whole farm, and the slots of each worker.
//
// A Sampler samples queues every 10 seconds and workers every minute, by the scheduler's own
// services, and Plots keep the samples as hints. The steps, the workers with a line and the stored
// bytes are limited.
//
// A plot has a gap where there was no sample. The package has no goroutines: Sampler.Run runs on its
// caller's. Plots.mu is not held during requests and I/O.
package plots
