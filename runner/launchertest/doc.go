// Package launchertest lets a test binary be the launcher of its own workers, as the programs are
// ([Main]), and has what tests of commands share: slots, launchers, commands whose output goes to
// files, and whether anything of them is left. It has no goroutines.
package launchertest
