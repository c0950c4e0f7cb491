// Package text takes notes in a simple Markdown apart: headings, paragraphs and
// words.
package text

import (
	"strings"
	"unicode"
)

// A Note is a text taken apart.
type Note struct {
	Headings []string
	Words    []string // in the order of the text, headings included, folded
}

// Parse takes source apart. Lines between fences of three backquotes are code,
// and no words.
func Parse(source string) Note {
	var n Note
	code := false
	for line := range strings.Lines(source) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			code = !code
			continue
		}
		if code {
			continue
		}
		if title, ok := heading(line); ok {
			n.Headings = append(n.Headings, title)
			line = title
		}
		n.Words = append(n.Words, Words(line)...)
	}
	return n
}

// heading returns the title of a line that begins with number signs.
func heading(line string) (string, bool) {
	rest := strings.TrimLeft(line, "#")
	if rest == line || !strings.HasPrefix(rest, " ") {
		return "", false
	}
	return strings.TrimSpace(rest), true
}

// Words returns the words of s in lower case. A word is a run of letters and
// digits, apostrophes within it included.
func Words(s string) []string {
	fields := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\''
	})
	words := fields[:0]
	for _, f := range fields {
		if f = strings.Trim(f, "'"); f != "" {
			words = append(words, f)
		}
	}
	return words
}

// common words say nothing about a text.
const common = " a an and are as at be but by for from has in is it its no not of on or " +
	"so that the their then there they this to was what when which who will with "

// IsCommon reports whether word says nothing about a text it occurs in.
func IsCommon(word string) bool {
	return strings.Contains(common, " "+word+" ")
}
