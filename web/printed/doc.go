// Package printed shows the output of commands as text, with the colours that a terminal would
// show. It removes links, images and all other control strings.
//
// Everything is limited: the shown part of a stream, the lines in which a command can move its
// cursor back, and the bytes of HTML. One large text is rendered at a time: callers take turns. The
// package has no goroutines and no locks.
package printed
