// Package watch stops commands that use much kernel memory that is not charged to their cgroups.
//
// [Objects] belong to a worker: they know the use of others on the machine, and let a command start
// ([Objects.Enter]) unless all commands must end because of overuse with an unknown owner. A
// [Watch] belongs to one command. Each kind of check has its own goroutine, because a command can
// make some of them slow; all have ended when [Watch.Until] returns.
//
// An error of a check is not overuse: a watch fails no action.
package watch
