package reference

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/settings"
)

// Golden has the test fail if a file is not what is generated. With FORERUNNER_GENERATE it writes the file.
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

// Program holds the page of a program's flags to its commands, and how many flags each lists to what people can
// take in: what few farms change belongs into the tuning section.
func Program(t *testing.T, file string, root *cobra.Command, mostFlags int) {
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
}
