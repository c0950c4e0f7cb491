// Package facts formats messages about actions: field by field, as stages, and as outcomes. Pages
// and the command line use it. The package makes no requests. It has no goroutines.
package facts
