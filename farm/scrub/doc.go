// Package scrub has the settings of a program's stores and folders on disk: how long a verification
// counts, how often the program reads a store again to find damage, whether folders are spread.
package scrub
