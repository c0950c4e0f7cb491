// Package eintr repeats system calls that a signal has interrupted. The Go runtime sends itself
// signals, and some file systems let them interrupt calls that would otherwise be restarted.
//
// It has no state, and does not give up.
package eintr
