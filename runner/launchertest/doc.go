// Package launchertest lets a test binary be the launcher of its own workers, as the programs are. It has no
// goroutines.
package launchertest
