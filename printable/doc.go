// Package printable shows texts that others chose: names of targets, users and workers, command
// lines, errors. On a page, a terminal and in a log each character of a name is seen. None moves the
// cursor, changes the direction of reading, or takes no room, so no name looks like another one or
// like another line.
//
// A character that would not be seen is written as its code point, [U+202E], or in a word for a
// shell as the bytes that the shell reads, $'\342\200\256'. The package has no state.
package printable
