package main

import (
	"testing"

	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/settings/reference"
)

// mostFlags bounds what --help lists: what few farms change belongs into the tuning section.
const mostFlags = 29

// TestReference holds the page of the flags to the command, and their number to what people can take in.
func TestReference(t *testing.T) {
	cmd := command()
	reference.Golden(t, "../../docs/reference/forerunner-scheduler.md", reference.Commands(cmd))
	cmd.InitDefaultHelpFlag()
	n := 0
	for _, g := range settings.Groups(cmd.Flags()) {
		n += len(g.Flags)
	}
	if n > mostFlags {
		t.Errorf("--help lists %d flags, want at most %d", n, mostFlags)
	}
}
