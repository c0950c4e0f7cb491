// Package charts computes the positions of bars, lines and marks on a page, in the units of an SVG.
// Its callers provide the data. It has no goroutines.
package charts
