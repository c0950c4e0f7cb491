// Package digest names blobs by their content, as REv2 does: a digest function,
// a hash and a size. A Digest is a small comparable value, so it can be a map
// key. The package neither stores nor fetches anything.
package digest
