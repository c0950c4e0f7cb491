package text

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"
)

// Duration formats a time.Duration or a durationpb.Duration. It drops parts that are too small to
// matter.
func Duration(d any) string {
	var of time.Duration
	switch d := d.(type) {
	case time.Duration:
		of = d
	case *durationpb.Duration:
		if d == nil {
			return "–"
		}
		of = d.AsDuration()
	}
	switch abs := of.Abs(); {
	case abs >= time.Minute:
		return of.Round(time.Second).String()
	case abs >= time.Second:
		return of.Round(10 * time.Millisecond).String()
	case abs >= time.Millisecond:
		return of.Round(100 * time.Microsecond).String()
	}
	return of.Round(time.Microsecond).String()
}

// Count formats an integer with a thin space between thousands.
func Count(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "\u2009" + digits[i:]
	}
	return digits
}

// Percent formats a share from 0 to 1.
func Percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// Words turns InputRoot into "Input root".
func Words(s string) string {
	var b strings.Builder
	for i, r := range s {
		next := i+1 < len(s) && unicode.IsLower(rune(s[i+1]))
		if i > 0 && unicode.IsUpper(r) && next {
			b.WriteByte(' ')
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Command writes a command in shell syntax. Characters that a page or terminal does not show, or that
// change the order of others, are escaped: what is read is what a shell runs.
func Command(args []string) string {
	list := make([]string, len(args))
	for i, a := range args {
		plain := a != "" && !strings.ContainsFunc(a, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_", r)
		})
		switch {
		case plain:
			list[i] = a
		case strings.ContainsFunc(a, isHidden):
			list[i] = escaped(a)
		default:
			list[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}

// isHidden reports whether a character is not shown as itself.
func isHidden(r rune) bool { return !unicode.IsGraphic(r) && r != '\n' && r != '\t' }

// escaped writes a word as $'…' (POSIX.1-2024, 2.2.4), with the bytes of what is hidden.
func escaped(word string) string {
	var b strings.Builder
	b.WriteString("$'")
	for _, r := range word {
		switch {
		case isHidden(r):
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
