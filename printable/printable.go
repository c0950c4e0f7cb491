package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// blank has characters that count as letters or marks and are not seen: fillers, joiners, variation
// selectors and an empty pattern of Braille.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x034f, 0x034f, 1},
		{0x115f, 0x1160, 1},
		{0x17b4, 0x17b5, 1},
		{0x180b, 0x180f, 1},
		{0x2800, 0x2800, 1},
		{0x3164, 0x3164, 1},
		{0xfe00, 0xfe0f, 1},
		{0xffa0, 0xffa0, 1},
	},
	R32: []unicode.Range32{{0xe0100, 0xe01ef, 1}},
}

// isHidden reports whether a character is not seen as itself, in a text of one line.
func isHidden(r rune) bool {
	return r < ' ' || r > '~' && (!unicode.IsGraphic(r) || unicode.Is(blank, r))
}

// isHiddenInLines is isHidden for a text of several lines.
func isHiddenInLines(r rune) bool { return isHidden(r) && r != '\n' && r != '\t' }

// Name returns a text as it is shown on one line.
func Name(s string) string { return replaced(s, isHidden) }

// Lines returns a text of any number of lines as it is shown.
func Lines(s string) string { return replaced(s, isHiddenInLines) }

// Glob returns a pattern that matches a text, in which "?" stands for what is not seen.
func Glob(s string) string {
	return strings.Map(func(r rune) rune {
		if isHidden(r) {
			return '?'
		}
		return r
	}, s)
}

// Mark begins what stands for a character that is not seen.
const Mark = "[U+"

// code formats it.
const code = Mark + "%04X]"

func replaced(s string, isHidden func(rune) bool) string {
	if strings.IndexFunc(s, isHidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isHidden(r) {
			fmt.Fprintf(&b, code, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Page returns an encoded page in which all characters of Lines are seen; encoded itself if they are.
func Page(encoded []byte) []byte {
	at := nextHidden(encoded)
	if at < 0 {
		return encoded
	}
	var page []byte
	for ; at >= 0; at = nextHidden(encoded) {
		r, n := utf8.DecodeRune(encoded[at:])
		page = fmt.Appendf(append(page, encoded[:at]...), code, r)
		encoded = encoded[at+n:]
	}
	return append(page, encoded...)
}

// nextHidden returns the place of the first character that is not seen; -1: there is none.
func nextHidden(b []byte) int {
	for i := 0; i < len(b); {
		if c := b[i]; c >= ' ' && c <= '~' {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if isHiddenInLines(r) {
			return i
		}
		i += n
	}
	return -1
}

// JSON escapes the characters of a JSON text that are not seen. Its values stay the same.
func JSON(encoded []byte) []byte {
	if nextHidden(encoded) < 0 {
		return encoded
	}
	b := make([]byte, 0, len(encoded)+16)
	for _, r := range string(encoded) {
		switch {
		case !isHiddenInLines(r):
			b = utf8.AppendRune(b, r)
		case r <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
	}
	return b
}
