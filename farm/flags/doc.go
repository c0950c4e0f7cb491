// Package flags is the common part of all programs' flags: each can be an environment variable,
// --print-config prints the effective values, sizes have units. The flags themselves are fields of
// structs in package farm, such as farm.Worker, with the tags of package settings. The package also
// has the logger and the signals of a program.
//
// Signals has a goroutine until it is released; there are no locks.
package flags
