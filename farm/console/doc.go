// Package console writes the log of a program for people at a terminal: one short line for each
// action, one each minute that sums them up, and all else with its level and fields. It has no
// goroutine but those of a timer, which runs while there are actions to sum up.
package console
