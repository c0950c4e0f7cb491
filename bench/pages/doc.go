// Package pages measures the scheduler's pages over a long queue, and what looking at them costs dispatch.
package pages
