// Package console writes the log of a program for people at a terminal: one short line for each
// action, a summary each minute, and other lines with their level and fields. Its only goroutines
// are those of a timer, which runs while there are actions to sum up.
package console
