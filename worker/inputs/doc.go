// Package inputs is what a worker knows of the inputs of an action beside their bytes: how its input root
// reads them ([Source]), which of them storage lacks ([Search]), and how much there is ([Sizes]).
//
// It has no goroutines.
package inputs
