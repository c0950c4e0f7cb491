// Package cas holds content: blobs named by their digest on a local disk, the
// results of actions, and the REv2 protocols to get both from elsewhere and to
// offer them to others.
package cas
