// Package levels says by which keys operations share workers: which branch of each level of a fair.Tree an operation is in.
//
// Operators choose the levels. A key that clients choose takes little memory, however long it is.
package levels
