// Package budget limits memory whose use strangers control and several holders share, such as the
// known paths of input roots. Each holder has a guaranteed share. Beyond their shares, all holders
// use one pool, from which each gets no more than it leaves to the others. So together they never
// exceed the budget, in whatever order they come.
//
// It frees nothing and waits for nobody. It has no goroutines.
package budget
