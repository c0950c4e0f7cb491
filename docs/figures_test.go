package docs

import (
	"os"
	"regexp"
	"testing"
)

// TestFiguresOfReadme: the figures in the README are those of docs/BENCHMARKS.md.
func TestFiguresOfReadme(t *testing.T) {
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	said := regexp.MustCompile(`takes\s+(\d\.\d+)\s+times[^.]*\.[^.]*takes\s+(\d\.\d+)\s+times`).FindStringSubmatch(read("../README.md"))
	if said == nil {
		t.Fatal("the README has no figures")
	}
	figures := read("BENCHMARKS.md")
	for i, row := range []string{"exact_50ms", "none_50ms"} {
		value := regexp.MustCompile(`(?m)^\| ` + row + `\b[^|]*\| (\d\.\d+) \|`).FindStringSubmatch(figures)
		if value == nil || value[1] != said[1+i] {
			t.Errorf("the README says %s, and %s is %q", said[1+i], row, value)
		}
	}
}
