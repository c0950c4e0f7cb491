// Package charts says where on a page bars, lines and marks are drawn, in the units of an SVG. The
// package refuses to ask anybody for what is drawn. It has no goroutines.
package charts
