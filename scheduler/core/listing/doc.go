// Package listing keeps items in the order in which they came, to be read from any of them on.
//
// Who reads a part and comes back for the next finds it at once, however many there are, whatever
// has come and gone meanwhile. The package knows nothing of what items are, and is not safe for
// concurrent use.
package listing
