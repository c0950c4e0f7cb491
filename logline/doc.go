// Package logline writes single lines to standard error for processes that have no logger, and has
// the form of log lines in JSON. It has no goroutines and keeps no state.
package logline
