// Package levels has the keys by which operations share workers: they select the branch of an
// operation in each level of a fair.Tree.
//
// Operators choose the levels. A key that clients choose takes little memory, however long it is.
package levels
