// Package series keeps figures over time at falling resolution: bins of several lengths, such as 10
// seconds for an hour and 10 minutes for two weeks. Each sample counts in one bin of each length,
// so sums and means of joined bins are exact.
//
// It has no clock, no goroutines and no locks: the caller passes the time, and makes one call at a
// time. The Shape limits memory and encoded size. A time without samples has no figures.
package series
