// Package learning chooses the size class on which an action starts, and learns from its runs.
//
// Learning asks package sizeclass, which has the statistics, and reports the ends of runs to it. It
// writes new data in the background: the end of an action never waits for it. Admin is the view for
// operators.
//
// Goroutines: Write runs on the caller's. Nobody holds another lock when taking the lock of a
// lesson.
package learning
