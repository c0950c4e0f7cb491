// Package reload keeps a value made of some files, and makes it again when they change:
// certificates, keys, tokens.
//
// It has no goroutine. A caller that gets the value checks the files, at most once a second and one
// caller at a time; all others get the present value. If files cannot be read, or are invalid, the
// value stays as it was, with one warning: a certificate that was replaced before its key must not
// take a server down.
//
// Contents are compared, not times, so that it does not matter how a file is replaced: written
// over, renamed, or by a symbolic link to its folder as in Kubernetes.
package reload
