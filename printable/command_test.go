package printable

import (
	"os/exec"
	"strings"
	"testing"
	"unicode"
)

// TestCommand has a shell read what Command writes: it must get the same words, and a reader must
// see all of their characters.
func TestCommand(t *testing.T) {
	words := []string{
		"plain", "", "a b", "it's", `back\slash`, "two\nlines\tand a tab", "größer", "\u202eright to left\u202c", "\x1b[31m it's \\ red\x07", "\u200b",
	}
	line := Command(words)
	for _, r := range line {
		if !unicode.IsGraphic(r) && r != '\n' && r != '\t' {
			t.Errorf("%q has %q", line, r)
		}
	}
	out, err := exec.Command("bash", "-c", "printf '%s\\0' "+line).Output()
	if got, want := string(out), strings.Join(words, "\x00")+"\x00"; err != nil || got != want {
		t.Errorf("%s is read as %q, want %q: %v", line, got, want, err)
	}
}
