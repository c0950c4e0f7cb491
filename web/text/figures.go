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
