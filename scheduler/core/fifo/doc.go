// Package fifo has lists from which values can be removed by their anchors.
package fifo
