// Package prefetch measures actions whose inputs are far away: cold against warm, with and without
// a profile, with wrong profiles, in this process and from outside, and the cost of recorder and
// prefetcher without any use for them.
//
// Its farms, workers and programs have ended when a run returns.
package prefetch
