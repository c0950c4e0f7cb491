// Package datafolder holds the folder that --data names: for one process at a time, and not for a program that is older than
// what is in it. It knows nothing of what programs keep there.
package datafolder
