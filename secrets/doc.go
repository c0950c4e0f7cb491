// Package secrets keeps secrets that programs generate in files: a line of text each, readable only
// for their owner.
//
// A file is written whole or not at all. Files that a power failure or a copy has damaged are
// recognized: zeros, a truncated line, a file that everybody may read.
package secrets
