package web

import (
	"html/template"
	"regexp"
	"strings"

	terminal "github.com/buildkite/terminal-to-html/v3"
)

// commands are control strings of terminals (OSC, APC, DCS), which make links and images: what a command prints is text
// with colours, and nothing else.
var commands = regexp.MustCompile(`(?s)\x1b[\]_P^X].*?(?:\x07|\x1b\\)`)

// rendered shows what a command printed as a terminal would: colours are classes of the style sheet.
func rendered(text string) template.HTML {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\x00", "\ufffd")
	text = onlyColours(commands.ReplaceAllString(text, ""))
	return template.HTML(terminal.Render([]byte(text))) // it escapes what is HTML
}

// onlyColours takes out each escape that begins anything but what colours begin with, such as a control string that was put
// together of what is left when others are taken out.
func onlyColours(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if text[i] != 0x1b || strings.HasPrefix(text[i+1:], "[") {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}
