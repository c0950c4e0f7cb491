// Package names has the names that two packages must write alike and that no schema holds:
// gRPC headers, streams of output, keys of a worker's identity, buckets of records and the
// source of mounts. A name that only one package writes and reads stays there.
package names
