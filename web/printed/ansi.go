package printed

import (
	"fmt"
	"html/template"
	"regexp"
	"strings"

	terminal "github.com/buildkite/terminal-to-html/v3"
)

// commands matches control strings of terminals (OSC, APC, DCS), which make links and images. Pages
// show only text and colours.
var commands = regexp.MustCompile(`(?s)\x1b[\]_P^X].*?(?:\x07|\x1b\\)`)

const (
	// screenLines is how many lines back a command can move its cursor, as progress bars do. Each
	// takes some kilobytes. A longer line of text, such as a link command with colours, takes one
	// more for each screenColumns characters.
	screenLines, screenColumns = 200, 160
	// mostRendered limits the HTML of a text, as a multiple of the text's size, but allows
	// leastRendered bytes. A few bytes of escape codes can make many spaces and colours.
	mostRendered, leastRendered = 4, 64 << 10
)

// rendered shows output as a terminal would: colours become CSS classes. If the HTML would be too
// large, colours are omitted.
func rendered(text string) template.HTML {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\x00", "\ufffd")
	text = onlyColours(commands.ReplaceAllString(text, ""))
	if !strings.ContainsAny(text, "\x1b\r\b") {
		return template.HTML(template.HTMLEscapeString(strings.TrimSuffix(text, "\n")))
	}
	screen := screenFor(text)
	var html strings.Builder // the builder in html/template escapes HTML
	most := max(mostRendered*len(text), leastRendered)
	screen.ScrollOutFunc = func(line string) {
		if html.Len() <= most {
			html.WriteString(line)
		}
	}
	_, _ = screen.Write([]byte(text)) // Write never fails
	if html.Len() <= most {
		html.WriteString(screen.AsHTML())
	}
	if html.Len() > most {
		return plain(text)
	}
	return template.HTML(html.String())
}

// plain returns a text without colours.
func plain(text string) template.HTML {
	return template.HTML(template.HTMLEscapeString(escapes.ReplaceAllString(text, "")))
}

// screenFor returns a screen with room for the longest line of a text, besides its visible part: a
// longer line would become several.
func screenFor(text string) *terminal.Screen {
	longest := 0
	for line := range strings.Lines(text) {
		longest = max(longest, len(line))
	}
	most := screenLines + longest/screenColumns + 1
	screen, err := terminal.NewScreen(terminal.WithMaxSize(0, most), terminal.WithSize(screenColumns, screenLines))
	if err != nil {
		panic(fmt.Sprintf("a screen of %d lines, with up to %d: %v", screenLines, most, err))
	}
	return screen
}

// escapes matches the remaining escape sequences of a text after onlyColours.
var escapes = regexp.MustCompile(`\x1b(\[[0-9;:?<=>]*[ -/]*[@-~]?)?`)

// onlyColours removes all escape sequences except colours, including control strings that appear
// only when others are removed.
func onlyColours(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if text[i] != 0x1b || strings.HasPrefix(text[i+1:], "[") {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}
