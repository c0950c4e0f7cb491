// Package flags is what the flags of all programs have in common: each can be an environment variable,
// --print-config shows what is in force, sizes have units. Here are also the logger and the signals of a program.
//
// Signals has a goroutine until it is released; there are no locks.
package flags
