// Package sweep goes through long lines of items in parts, so that no event does more than it may.
//
// The rest of one event's work is left to the following events. Until then an item is as if the
// pass had not begun. A pass goes through a Line once; items that are added meanwhile are part of
// it. The caller handles the items.
package sweep
