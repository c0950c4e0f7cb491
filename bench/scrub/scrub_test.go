package scrub

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/bench/benchtest"
)

// TestRows measures the rows that do not take long.
func TestRows(t *testing.T) {
	dir := benchtest.NewDir(t)
	cmd := NewCommand()
	var printed bytes.Buffer
	cmd.SetOut(&printed)
	only := []string{rowHashCPU, rowStreamCPU, rowVerifiedCPU, rowOpen}
	cmd.SetArgs([]string{"--data", dir, "--out", filepath.Join(dir, "out"), "--runs", "1", "--blobs", "500", "--only", strings.Join(only, ",")})
	benchtest.Check(t, cmd.ExecuteContext(t.Context()))
	written, err := os.ReadFile(filepath.Join(dir, "out", "scrub-partial.json"))
	benchtest.Check(t, err)
	for _, row := range only {
		if !strings.Contains(printed.String(), row) || !strings.Contains(string(written), row) {
			t.Errorf("there is no row %s", row)
		}
	}
}
