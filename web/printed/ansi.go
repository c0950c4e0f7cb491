package printed

import (
	"fmt"
	"html/template"
	"regexp"
	"strings"

	terminal "github.com/buildkite/terminal-to-html/v3"
)

// commands are control strings of terminals (OSC, APC, DCS), for links and images: output is shown
// as text with colours, and nothing else.
var commands = regexp.MustCompile(`(?s)\x1b[\]_P^X].*?(?:\x07|\x1b\\)`)

const (
	// screenLines is how many lines a command can move its cursor back in, as progress bars do.
	// Each takes some kilobytes, and a longer one of the text, such as a link command with colours,
	// one for each screenColumns characters.
	screenLines, screenColumns = 200, 160
	// mostRendered is how many times its size a text may take as HTML, or leastRendered bytes.
	// Spaces and colours can be made by a few bytes each.
	mostRendered, leastRendered = 4, 64 << 10
)

// rendered shows output as a terminal would: colours are classes of the style sheet. A text with
// too many of them is shown without.
func rendered(text string) template.HTML {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\x00", "\ufffd")
	text = onlyColours(commands.ReplaceAllString(text, ""))
	if !strings.ContainsAny(text, "\x1b\r\b") {
		return template.HTML(template.HTMLEscapeString(strings.TrimSuffix(text, "\n")))
	}
	screen := screenFor(text)
	var html strings.Builder // it escapes HTML
	most := max(mostRendered*len(text), leastRendered)
	screen.ScrollOutFunc = func(line string) {
		if html.Len() <= most {
			html.WriteString(line)
		}
	}
	_, _ = screen.Write([]byte(text)) // which never fails
	if html.Len() <= most {
		html.WriteString(screen.AsHTML())
	}
	if html.Len() > most {
		return plain(text)
	}
	return template.HTML(html.String())
}

// plain shows a text without colours.
func plain(text string) template.HTML {
	return template.HTML(template.HTMLEscapeString(escapes.ReplaceAllString(text, "")))
}

// screenFor returns a screen that has room for the longest line of a text beside its visible part:
// a longer line would make several.
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

// escapes are the remaining ones in a text of only colours.
var escapes = regexp.MustCompile(`\x1b(\[[0-9;:?<=>]*[ -/]*[@-~]?)?`)

// onlyColours removes each escape that does not begin a colour, also a control string that results
// from removing others.
func onlyColours(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if text[i] != 0x1b || strings.HasPrefix(text[i+1:], "[") {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}
