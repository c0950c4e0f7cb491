// Package outputs takes what a command made out of its input root: it makes the folders that the command
// expects ([Spec.Prepare]), finds the outputs when it has ended, hashes them, moves or copies them into the
// worker's store, and uploads what storage lacks ([Outputs]).
//
// It knows the root as a folder in which some files are unchanged inputs ([Root]), and nothing of actions: who
// runs the command, whether it is run again and who is told are for others to decide.
//
// It has no goroutines. An Outputs belongs to one.
package outputs
