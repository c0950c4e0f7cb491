// Package pages measures the scheduler's pages over a long queue and over many records of what has ended, and what looking at
// them and keeping records cost dispatch.
package pages
