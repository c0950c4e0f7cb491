// Package policy decides how an action runs: its arguments and environment, its user, its network
// access. An operator's file of policies has precedence over the action's platform, and that over
// the worker's settings.
//
// It knows platforms and commands, but not actions and input roots. It starts nothing and has no
// goroutines.
package policy
