package main

import (
	"testing"

	"github.com/forerunner-build/forerunner/settings/reference"
)

func TestReference(t *testing.T) {
	reference.Program(t, "../../docs/reference/forerunner.md", command())
}
