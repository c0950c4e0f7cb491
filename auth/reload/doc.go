// Package reload keeps what was made of some files, and makes it anew when they
// change: certificates, keys, tokens.
//
// It has no goroutine. Who asks for the value looks at the files, at most once a
// second and one at a time; all others get what there is. Files that cannot be read,
// or of which nothing can be made, leave the value as it was, with one warning: a
// certificate that was replaced before its key must not take a server down.
//
// Contents are compared, not times, so that it does not matter how a file is replaced:
// written over, renamed, or by a symbolic link to its folder as in Kubernetes.
package reload
