// Package inputs has the worker's view of the inputs of an action beside their bytes: how its input
// root reads them ([Source]), which of them storage lacks ([Search]), and how large they are
// ([Sizes]).
//
// It has no goroutines.
package inputs
