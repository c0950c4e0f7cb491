// Package census finds the commands that hold too many objects of a kind which the kernel has once
// for the whole machine, and for which no cgroup is charged: file locks, mounted file systems.
//
// A command is guilty for certain if its own processes show too many. Objects that no process shows
// have an unknown owner; the census knows how many others have, because it counted when no command
// ran. What appears while commands run never counts as the others'.
//
// It stops nothing. A Census holds no lock while it counts. Counts have goroutines of their own: a
// command can make one take long, and others, which share it, may end before. There are few at a
// time, and none looks at processes for longer than some seconds.
package census
