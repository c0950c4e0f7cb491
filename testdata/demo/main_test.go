package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	var first, second strings.Builder
	for _, out := range []*strings.Builder{&first, &second} {
		if err := run(out, "digest of a build", 8); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two runs differ")
	}
	for _, want := range []string{"content.md", "scheduling.md", "worker.md", "best matches"} {
		if !strings.Contains(first.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, first.String())
		}
	}
}
