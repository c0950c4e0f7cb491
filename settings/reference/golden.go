package reference

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forerunner-build/forerunner/settings"
)

// Golden fails the test if a file differs from the generated one. With FORERUNNER_GENERATE it
// writes the file.
func Golden(t *testing.T, file, text string) {
	t.Helper()
	if os.Getenv("FORERUNNER_GENERATE") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	there, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(there) != text {
		t.Errorf("%s is not what is generated: run make generate", file)
	}
}

// mostFlags limits the flags in the help of a command besides --version: settings that few farms
// change belong in the tuning section.
const mostFlags = 28

// Program compares the page of a program's flags with its commands, and limits the flags of each
// command.
func Program(t *testing.T, file string, root *cobra.Command) {
	t.Helper()
	Golden(t, file, Commands(root))
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		cmd.InitDefaultHelpFlag()
		n := 0
		for _, g := range settings.Groups(cmd.Flags()) {
			n += len(g.Flags)
		}
		if n > mostFlags {
			t.Errorf("%s --help lists %d flags, want at most %d", cmd.CommandPath(), n, mostFlags)
		}
	}
	examples(t, root)
	help(t, root)
}

// help limits the lines of help texts, and requires each wrong value to be refused when flags are
// parsed.
func help(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	for _, below := range cmd.Commands() {
		help(t, below)
	}
	var text strings.Builder
	cmd.SetOut(&text)
	cmd.SetErr(&text)
	if err := cmd.Help(); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(text.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > settings.Columns {
			t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), n, line)
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		unit, usage, _ := settings.Describe(f)
		if usage == "" && !f.Hidden {
			t.Errorf("%s --help has no text for --%s", cmd.CommandPath(), f.Name)
		}
		wrong := map[string]string{
			"ADDRESS": "foo://x", "URL": "foo://x", "LOCATION": "foo://x", "SIZE": "-5", "TIME": "-5s", "NUMBER": "-5",
			"INTERVAL": "-5s", "UNITS": "-5", "KEY=VALUE": "novalue", "NAME=VALUE": "novalue",
		}[unit]
		if wrong != "" && f.Value.Set(wrong) == nil {
			t.Errorf("%s accepts --%s=%s", cmd.CommandPath(), f.Name, wrong)
		}
	})
}

// word is one of a command line.
var word = regexp.MustCompile(`(?:'[^']*'|[^\s'])+`)

// examples requires an example for each command, of itself or of one of its verbs, with existing
// flags and arguments.
func examples(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	for _, below := range cmd.Commands() {
		examples(t, below)
	}
	if cmd.Runnable() && cmd.Example == "" {
		t.Errorf("%s --help has no example", cmd.CommandPath())
	}
	for line := range strings.Lines(cmd.Example) {
		var words []string
		for _, w := range word.FindAllString(line, -1) {
			words = append(words, strings.ReplaceAll(w, "'", ""))
		}
		named, args, err := cmd.Root().Find(words[1:])
		if err == nil {
			err = named.ParseFlags(args)
		}
		if err == nil {
			err = named.ValidateArgs(named.Flags().Args())
		}
		if words[0] != cmd.Root().Name() || named != cmd && named.Parent() != cmd || err != nil {
			t.Errorf("%s --help has an example of %v: %s: %v", cmd.CommandPath(), named.CommandPath(), line, err)
		}
	}
}
