// Package policy decides how an action runs: with which arguments and environment, as which user,
// with or without network. An operator's file of policies comes before the action's platform, and
// that before the worker's settings.
//
// It knows platforms and commands, but not actions and input roots. It starts nothing and has no
// goroutines.
package policy
