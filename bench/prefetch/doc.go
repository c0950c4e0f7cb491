// Package prefetch measures actions whose inputs are far away: cold against warm, with and without a profile, and
// what recorder and prefetcher cost where they have nothing to do.
package prefetch
