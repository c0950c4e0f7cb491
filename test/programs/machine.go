package programs

import (
	"os"
	"strings"
	"testing"
)

// Tail returns the last lines of a text.
func Tail(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}

// SharedDir makes a folder that actions see too, without a sandbox.
func SharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "forerunner-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Needs ends the test because the machine lacks something: skipped, but failed under CI.
func Needs(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
