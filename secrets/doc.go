// Package secrets keeps secrets that programs make themselves in files: a line of text each,
// readable for their owner.
//
// A file is written whole or not at all, and what a loss of power or a copy has left of one is told
// from a secret: zeros, a line that is cut short, a file that everybody may read.
package secrets
