// Package wire has the formats that client and server of storage share: resource names, and how
// messages are cut and compressed. It does no I/O of its own.
package wire
