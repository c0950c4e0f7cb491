// Package sweep works through long lines of items in parts, so that no event does too much at once.
// Later events continue the work that an event began. Until an item's turn, it is as if the pass
// had not begun. A pass goes through a Line once, including items that are added meanwhile. The
// caller handles the items.
package sweep
