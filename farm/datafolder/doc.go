// Package datafolder holds the folder of --data: for one process at a time, and not for a program
// that is older than its contents. It knows nothing of the programs' data there.
package datafolder
