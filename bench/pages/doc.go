// Package pages measures the scheduler's pages over a long queue and over many records of completed
// operations, and the cost of viewers and records for dispatch.
package pages
