// Package plots samples the farm, keeps the samples at falling resolution, and draws them as
// charts: waiting actions, slots and workers of the whole farm, and the slots of each worker.
//
// A Sampler asks the scheduler's own services for queues every 10 seconds and for workers every
// minute. Plots stores the samples as hints. The steps, the charted workers and the stored bytes
// are limited.
//
// A chart has a gap where there is no sample. The package starts no goroutines: Sampler.Run uses
// its caller's. No lock is held during requests and I/O.
package plots
