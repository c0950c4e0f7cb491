// Package series keeps figures over time at falling resolution: a few bins for each of several steps, such as 10 seconds for an
// hour and 10 minutes for two weeks. Each sample counts in one bin of each step, so that sums and means of joined bins are
// those of their samples.
//
// It has no clock, no goroutines and no locks: who adds and reads says what time it is, and does so one at a time. Memory and
// what is written are bounded by the Shape. It refuses to say anything of a time of which there was no sample.
package series
