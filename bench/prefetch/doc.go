// Package prefetch measures actions whose inputs are far away: cold against warm, with and without a profile, with
// profiles that are wrong, in this process and from outside, and what recorder and prefetcher cost where they have
// nothing to do.
//
// Farms, workers and programs that it starts have ended when a run returns.
package prefetch
