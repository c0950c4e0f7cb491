package main

import (
	"testing"

	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/settings/reference"
)

// mostFlags bounds what --help lists: what few farms change belongs into the tuning section.
const mostFlags = 29

// TestReference holds the page of the flags to the commands, and their number to what people can take in.
func TestReference(t *testing.T) {
	root := command()
	reference.Golden(t, "../../docs/reference/forerunner.md", reference.Commands(root))
	for _, cmd := range root.Commands() {
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
