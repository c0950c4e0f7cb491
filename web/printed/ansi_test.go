package printed

import (
	"context"
	"fmt"
	"html/template"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// TestOnlyColours removes control strings, including those that appear only when others are
// removed.
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

// TestRenderedIsBounded renders outputs whose lines take much room on a screen. All lines must be
// there, and the HTML must be a few times as large as the output.
func TestRenderedIsBounded(t *testing.T) {
	const size = maxPrinted / 4
	for _, line := range []string{"x\n", "\x1b[159Cx\n", "\x1b[31mx\x1b[0m\n", "\x1b[4;31mx\x1b[7;32mx", "<\n"} {
		n := size / len(line)
		text := strings.Repeat(line, n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		html := string(rendered(text))
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 500*size || len(html) > 6*size {
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

// TestRenderingTakesTurns has a large output wait for another caller's. A small one must not wait.
func TestRenderingTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewReader(nil)
		leave, err := p.turns.Take(t.Context(), "another")
		if err != nil {
			t.Fatal(err)
		}
		const coloured = "\x1b[31mx\x1b[0m\n"
		if html := p.HTML(t.Context(), coloured); !strings.Contains(string(html), "<span") {
			t.Errorf("a small output: %s", html)
		}
		shown := make(chan template.HTML, 1)
		go func() { shown <- p.HTML(t.Context(), strings.Repeat(coloured, quicklyRendered)) }()
		synctest.Wait()
		select {
		case <-shown:
			t.Error("two large outputs are rendered at a time")
		default:
		}
		leave()
		if html := <-shown; !strings.Contains(string(html), "<span") {
			t.Error("a large output has no colours")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.turns.Take(t.Context(), "another"); err != nil {
			t.Fatal(err)
		}
		if html := string(p.HTML(ended, strings.Repeat(coloured, quicklyRendered))); strings.ContainsAny(html, "<\x1b") {
			t.Error("a caller that does not wait for its turn gets a large output with colours")
		}
	})
}

// TestLinesStayWhole renders lines longer than a screen, with colours and without, and a line after
// them. The number of lines must stay the same.
func TestLinesStayWhole(t *testing.T) {
	for _, size := range []int{screenColumns, screenColumns * screenLines, 3*screenColumns*screenLines + 7, maxPrinted - 64} {
		long := strings.Repeat("x", size)
		for _, text := range []string{
			long + "\nend\n", "\x1b[31m" + long + "\x1b[0m\nend\n", "first\n\x1b[31m" + long + "\x1b[0m\n\nend",
			strings.Repeat("\x1b[1mb\x1b[0m\n", screenLines) + long + "\nend",
		} {
			html := string(rendered(text))
			if got, want := strings.Count(html, "\n"), strings.Count(strings.TrimSuffix(text, "\n"), "\n"); got != want {
				t.Errorf("%d characters, %q and so on: %d line breaks, want %d", size, text[:20], got, want)
			}
			if !strings.Contains(html, long) || !strings.HasSuffix(html, "\nend") {
				t.Errorf("%d characters, %q and so on: not all is shown", size, text[:20])
			}
		}
	}
}

// TestCursorMovesBack has a command overwrite the first line that its cursor can reach.
func TestCursorMovesBack(t *testing.T) {
	var text strings.Builder
	for range screenLines - 1 {
		text.WriteString("waits\n")
	}
	fmt.Fprintf(&text, "\x1b[%dAready\x1b[%dB\rend", screenLines-1, screenLines-1)
	html := string(rendered(text.String()))
	if got, want := strings.Count(html, "waits"), screenLines-2; got != want || !strings.HasPrefix(html, "ready\n") || !strings.HasSuffix(html, "\nend") {
		t.Errorf("%d lines wait, want %d:\n%s", got, want, html)
	}
}

// TestPlainText renders a text without escape codes unchanged.
func TestPlainText(t *testing.T) {
	if got, want := string(rendered("<a>\t&\r\n\n  \x00 b\n")), "&lt;a&gt;\t&amp;\n\n  \ufffd b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
