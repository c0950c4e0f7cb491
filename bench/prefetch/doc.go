// Package prefetch measures actions whose inputs are in a distant storage: cold against warm, with
// and without a profile, with wrong profiles, with workers in this process and in separate ones. It
// also measures the cost of recorder and prefetcher when they are of no use.
//
// All farms, workers and programs have ended when a run returns.
package prefetch
