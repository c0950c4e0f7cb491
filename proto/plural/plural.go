package plural

import (
	"fmt"
	"strings"
)

// Integer is the type of a number.
type Integer interface {
	~int | ~int32 | ~int64 | ~uint32 | ~uint64
}

// Of returns a number with a regular noun, given in the singular: "1 worker", "2 workers".
func Of[N Integer](n N, noun string) string { return fmt.Sprintf("%d %s", n, Noun(n, noun)) }

// Noun returns the form of a regular noun after a number, without the number.
func Noun[N Integer](n N, noun string) string { return Choose(n, noun, many(noun)) }

// Choose returns one for the number 1, and more for all others: "is" and "are".
func Choose[N Integer](n N, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

func many(noun string) string {
	stem, isY := strings.CutSuffix(noun, "y")
	switch {
	case isY && !strings.HasSuffix(stem, "a") && !strings.HasSuffix(stem, "e") && !strings.HasSuffix(stem, "o"):
		return stem + "ies"
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "x"), strings.HasSuffix(noun, "ch"):
		return noun + "es"
	}
	return noun + "s"
}
