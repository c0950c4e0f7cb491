// Package state opens what a program keeps of former actions: hints in a file, in a Redis or in
// services elsewhere.
package state
