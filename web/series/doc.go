// Package series keeps figures over time at falling resolution: a few bins for each of several
// steps, such as 10 seconds for an hour and 10 minutes for two weeks. Each sample counts in one bin
// of each step, so that sums and means of joined bins are those of their samples.
//
// It has no clock, no goroutines and no locks: the caller passes the time, and makes one call at a
// time. The Shape limits memory and encoded size. A time without samples has no figures.
package series
