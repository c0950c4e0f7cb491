// Package names has names that two packages must write alike and that are in no schema: gRPC
// headers, streams of output, keys of a worker's identity, buckets of records and the source of
// mounts. A name that only one package uses stays there.
package names
