// Package pages measures the scheduler's pages with a long queue and with many records of completed
// operations, and how much viewers and records slow down dispatch.
package pages
