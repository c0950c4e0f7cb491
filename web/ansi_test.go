package web

import (
	"runtime"
	"strings"
	"testing"
)

// TestOnlyColours prints control strings, also such that are whole only when others have been taken out of them.
func TestOnlyColours(t *testing.T) {
	for name, text := range map[string]string{
		"link":          "\x1b]8;;http://attacker.example/\x07click\x1b]8;;\x07",
		"image":         "\x1b]1338;url=http://attacker.example/x.png;alt=x\x07",
		"inner one":     "\x1b\x1b]a\x07]1338;url=http://attacker.example/x.png;alt=x\x07",
		"two inner":     "\x1b\x1b]a\x07\x1b\x1b]a\x07]8;;http://attacker.example/\x07click",
		"without end":   "\x1b]8;;http://attacker.example/",
		"two at once":   "\x1b\x1b]8;;http://attacker.example/\x07click",
		"application":   "\x1b\x1b_x\x07_bk;t=1\x07",
		"at the end":    "text\x1b",
		"other escapes": "\x1bPq\x1b\\\x1b^x\x1b\\\x1bXx\x1b\\\x1bc",
	} {
		html := string(rendered(text))
		if strings.Contains(html, "<a") || strings.Contains(html, "<img") || strings.Contains(html, "<time") || strings.Contains(html, "\x1b") {
			t.Errorf("%s: %s", name, html)
		}
	}
	if html := string(rendered("\x1b[31mred\x1b[0m\n")); !strings.Contains(html, "<span") || !strings.Contains(html, "red") {
		t.Errorf("a colour: %s", html)
	}
}

// TestRenderedIsBounded shows outputs of lines that a screen has much room for: all of their
// lines are there, and they take a few times their size.
func TestRenderedIsBounded(t *testing.T) {
	const size = maxPrinted / 4
	for _, line := range []string{"x\n", "\x1b[159Cx\n", "\x1b[31mx\x1b[0m\n", "\x1b[4;31mx\x1b[7;32mx", "<\n"} {
		n := size / len(line)
		text := strings.Repeat(line, n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		html := string(rendered(text))
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 250*size || len(html) > 6*size {
			t.Errorf("%q: %d bytes of memory for %d of HTML", line, bytes, len(html))
		}
		if got := strings.Count(html, "x") + strings.Count(html, "&lt;"); got < n {
			t.Errorf("%q: %d of %d are shown", line, got, n)
		}
		if strings.Contains(html, "\x1b") {
			t.Errorf("%q: escapes are left", line)
		}
	}
}
