// Package instance has the rules for instance names, which clients choose (REv2): which names are
// valid, which is below which, and how they are joined. It resolves nothing: a name is just its
// bytes.
package instance
