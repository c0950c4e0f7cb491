// Package wire has the common formats of client and server of storage: the names of resources, and
// how messages are cut and packed. It does no I/O of its own.
package wire
