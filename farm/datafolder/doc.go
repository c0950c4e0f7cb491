// Package datafolder locks the folder of --data for one process, and protects it from a program
// that is older than its contents. It does not know the programs' data there.
package datafolder
