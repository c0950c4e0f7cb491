package benchtest

import (
	"os"
	"strings"
	"testing"
)

// Check ends the test unless err is nil.
func Check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NewDir returns a folder on the disk. The test fails if it ends with a mount below the folder.
func NewDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "bench-test-")
	Check(t, err)
	t.Cleanup(func() {
		Check(t, os.RemoveAll(dir))
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		Check(t, err)
		if strings.Contains(string(mounts), dir) {
			t.Errorf("a mount is left below %s", dir)
		}
	})
	return dir
}
