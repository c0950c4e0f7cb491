// Package state opens a program's records of earlier actions: hints in a file, in a Redis or in
// external services.
package state
