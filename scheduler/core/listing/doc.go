// Package listing keeps items in their order of arrival, so that a reader can start at any of them.
// A reader that comes back for the next part finds it at once, however many items there are and
// whatever has changed meanwhile. The package does not interpret items, and is not safe for
// concurrent use.
package listing
