// Package policy says how an action is run: with which arguments and environment, as which user, with or
// without network. What an operator's file of policies says counts before what the action's platform says,
// and that before what the worker is set to.
//
// It knows platforms and commands, and neither actions nor input roots. It starts nothing and has no goroutines.
package policy
