package printable

import (
	"fmt"
	"iter"
	"strings"
)

// plain has the characters that no shell reads as anything else.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_"

// Command returns a command line as a shell reads it. Words with characters that are not seen are in
// the form $'…', which POSIX has since 2024.
func Command(args []string) string {
	list := make([]string, len(args))
	for i, a := range args {
		isPlain := a != "" && !strings.ContainsFunc(a, func(r rune) bool { return !strings.ContainsRune(plain, r) })
		switch {
		case isPlain:
			list[i] = a
		case strings.ContainsFunc(a, isHiddenInLines):
			list[i] = escaped(a)
		default:
			list[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}

// escaped returns a word in the form $'…'.
func escaped(word string) string {
	var b strings.Builder
	b.WriteString("$'")
	for _, r := range word {
		switch {
		case isHiddenInLines(r):
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			fallthrough
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// mostBrief limits Brief, in bytes.
const mostBrief = 100

// Brief returns the beginning of a command line, on one line; empty if there are no words.
func Brief(args iter.Seq[string]) string {
	var b strings.Builder
	for a := range args {
		if b.Len() > mostBrief {
			break
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(Command([]string{a[:min(len(a), 2*mostBrief)]}))
	}
	s := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, b.String())
	if len(s) <= mostBrief {
		return s
	}
	return strings.ToValidUTF8(s[:mostBrief], "") + "…"
}
