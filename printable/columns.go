package printable

import (
	"strings"
	"unicode"
)

// wide has the characters that may take two columns of a terminal: the blocks in which Unicode has
// wide and fullwidth ones (UAX #11), and those of emoji.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1},
		{0x231a, 0x23f3, 1},
		{0x25fd, 0x25fe, 1},
		{0x2600, 0x27bf, 1},
		{0x2b1b, 0x2b55, 1},
		{0x2e80, 0x303e, 1},
		{0x3041, 0xa4cf, 1},
		{0xa960, 0xa97c, 1},
		{0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1},
		{0xfe10, 0xfe6f, 1},
		{0xff01, 0xff60, 1},
		{0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x16fe0, 0x1b2ff, 1}, {0x1d300, 0x1d37f, 1}, {0x1f000, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

// columnsOf returns how many columns of a terminal a character takes at most.
func columnsOf(r rune) int {
	if r >= 0x1100 && unicode.Is(wide, r) {
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
