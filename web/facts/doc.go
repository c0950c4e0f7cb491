// Package facts formats messages about actions for pages and the command line: as tables of fields,
// as stages, and as outcomes. The package makes no requests. It has no goroutines.
package facts
