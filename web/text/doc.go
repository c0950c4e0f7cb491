// Package text formats figures for operators, on pages and on the command line. A missing figure is
// an empty string: each of the two has its own sign for it.
package text
