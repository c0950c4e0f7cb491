// Package wire is what client and server of storage have to write alike: the names of resources, and
// how messages are cut and packed. It does no I/O of its own.
package wire
