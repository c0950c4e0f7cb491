// Package instance is about instance names, which clients choose (REv2): which there can be, which
// is below which, and how they are put together. It resolves none: a name is the bytes that it is.
package instance
