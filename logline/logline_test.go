package logline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPrint prints into a file, where a program logs in JSON.
func TestPrint(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	Print(out, "error", "forerunner-guard", "mounts below \"/a\nb\" stay")
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	var line struct{ Level, Ts, Msg string }
	if err := json.Unmarshal(text, &line); err != nil || strings.Count(string(text), "\n") != 1 {
		t.Fatalf("%q is not one line of JSON: %v", text, err)
	}
	if _, err := time.Parse(time.RFC3339, line.Ts); err != nil || line.Level != "error" || line.Msg != "forerunner-guard: mounts below \"/a\nb\" stay" {
		t.Errorf("the line is %+v, %v", line, err)
	}
}
