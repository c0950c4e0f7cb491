// Package text formats figures for pages and for the command line. A missing figure is an empty
// string; pages and the command line each show it in their own way.
package text
