// Package printed shows what commands wrote to their streams: as text, and as a terminal would show
// it, in colours. What a command prints is text with colours and nothing else: links, images and
// control strings are taken out.
//
// Everything is bounded: how much of a stream is shown, the lines that a command can move its
// cursor back in, and the bytes of HTML. The package refuses to render more than one large text at
// a time: callers take turns. It has no goroutines and no locks.
package printed
