package printable

import (
	"strings"

	"golang.org/x/text/width"
)

// columnsOf returns how many columns of a terminal a character takes at most.
func columnsOf(r rune) int {
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// Columns returns how many columns of a terminal a text of one line takes at most.
func Columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// ellipsis stands for what is left out, and takes one column.
const ellipsis = "…"

// First returns the beginning of a text that fits into so many columns, with "…" if it is not all.
func First(s string, columns int) string {
	if Columns(s) <= columns {
		return s
	}
	left := columns - 1
	for i, r := range s {
		if left -= columnsOf(r); left < 0 {
			return s[:i] + ellipsis
		}
	}
	return s
}

// Last returns the end of a text that fits into so many columns, with "…" if it is not all.
func Last(s string, columns int) string {
	n := Columns(s)
	if n <= columns {
		return s
	}
	for i, r := range s {
		if n <= columns-1 {
			return ellipsis + s[i:]
		}
		n -= columnsOf(r)
	}
	return ellipsis
}

// Padded returns a text with as many spaces after it as fill so many columns.
func Padded(s string, columns int) string { return s + strings.Repeat(" ", max(columns-Columns(s), 0)) }
