// Package census finds the commands that hold too many kernel objects of a kind that is limited for
// the whole machine and charged to no cgroup: file locks, mounted file systems.
//
// A command is guilty for certain if its own processes show too many. Objects that no process shows
// have an unknown owner. The census counts objects when no command runs, and so knows how many
// belong to others; objects that appear while commands run never count as theirs.
//
// It stops nothing. A Census holds no lock while it counts. Counts run in goroutines of their own,
// because a command can make one slow, and callers that share it may leave earlier. There are few
// at a time, and none examines processes for longer than some seconds.
package census
