// Package learning chooses the size class on which an action starts, and learns from its runs.
//
// Learning asks package sizeclass, which has the statistics, and tells it how runs ended. What is learned is written behind: the
// end of an action never waits for it. Admin is what operators see of it.
//
// Goroutines: Write is the caller's. Each lesson has a lock that is taken without any other.
package learning
