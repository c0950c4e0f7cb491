package forerunner

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDependencies holds docs/DEPENDENCIES.md to what go.mod requires directly.
func TestDependencies(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("docs/DEPENDENCIES.md")
	if err != nil {
		t.Fatal(err)
	}
	var required, explained []string
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1) {
		required = append(required, m[1])
	}
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			explained = append(explained, m[1])
		}
	}
	if len(required) < 10 {
		t.Fatalf("go.mod requires %q", required)
	}
	for _, name := range required {
		if !slices.Contains(explained, name) {
			t.Errorf("%s has no reason in docs/DEPENDENCIES.md", name)
		}
	}
	for _, name := range explained {
		if !slices.Contains(required, name) {
			t.Errorf("%s is in docs/DEPENDENCIES.md and is not required", name)
		}
	}
}
