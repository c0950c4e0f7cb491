package forerunner

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDependencies compares the list of dependencies in docs/ARCHITECTURE.md with what go.mod
// requires directly.
func TestDependencies(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, doc, found := strings.Cut(string(page), "\n## Dependencies\n")
	if !found {
		t.Fatal("the page has no list of dependencies")
	}
	var required, explained []string
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1) {
		required = append(required, m[1])
	}
	for line := range strings.Lines(doc) {
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
			t.Errorf("%s has no reason in docs/ARCHITECTURE.md", name)
		}
	}
	for _, name := range explained {
		if !slices.Contains(required, name) {
			t.Errorf("%s is in docs/ARCHITECTURE.md and is not required", name)
		}
	}
}
