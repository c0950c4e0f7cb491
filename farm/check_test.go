package farm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckOfSettings has settings that are good alone and not together: a scheduler would not start.
func TestCheckOfSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	for text, want := range map[string]string{
		"tuning: {default_timeout: 48h}":                   "default_timeout, 48h0m0s, exceeds max_timeout, 24h0m0s",
		"tuning: {default_timeout: 48h, max_timeout: 72h}": "",
		"tuning: {max_timeout: 30m}":                       "default_timeout, 1h0m0s, exceeds max_timeout, 30m0s",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := CheckFile(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
