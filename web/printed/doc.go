// Package printed shows the output of commands: as text, and in colours as a terminal would. Only
// text and colours are left of it: links, images and other control strings are removed.
//
// Everything is limited: the shown part of a stream, the lines in which a command can move its
// cursor back, and the bytes of HTML. Only one large text at a time is rendered: callers take turns.
// The package has no goroutines and no locks.
package printed
