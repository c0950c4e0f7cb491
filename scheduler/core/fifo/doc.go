// Package fifo has lists from which values can be removed by their anchors, and rings of values that
// leave in the order in which they came.
package fifo
