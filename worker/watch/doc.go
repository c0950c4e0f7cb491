// Package watch stops commands that use much kernel memory which their groups are not charged for.
//
// [Objects] belong to a worker: they know what others on the machine have, and let a command in
// ([Objects.Enter]) unless all had to end because nobody knows whose an excess is. A [Watch] belongs
// to one command. Each kind of look has a goroutine of its own, because a command can make some of
// them long; all have ended when [Watch.Until] returns.
//
// An error of a look is no excess: a watch fails no action.
package watch
