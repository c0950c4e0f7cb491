// Package text formats figures for operators, on pages and on the command line. A missing figure is
// an empty string: pages and the command line each have their own sign for it.
package text
