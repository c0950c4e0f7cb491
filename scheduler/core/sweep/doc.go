// Package sweep goes through long lines of items in parts, so that no event does more than it may.
//
// What one event leaves is done by those that follow. Meanwhile all of it is as if it had not begun. A pass goes
// through a Line once; what comes meanwhile is a part of it. What becomes of an item is the caller's business.
package sweep
