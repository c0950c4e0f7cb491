package logline

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPrint prints a line in both forms.
func TestPrint(t *testing.T) {
	printed := func(f Form, err error) string {
		out, openErr := os.Create(filepath.Join(t.TempDir(), "log"))
		if openErr != nil {
			t.Fatal(openErr)
		}
		defer out.Close()
		if FormOn(out, false) != JSON {
			t.Error("a file is for people")
		}
		f.Print(out, "error", "mounts below \"/a\nb\" stay", err)
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text := printed(JSON, errors.New("busy"))
	var line struct{ Level, Ts, Msg, Error string }
	if err := json.Unmarshal([]byte(text), &line); err != nil || strings.Count(text, "\n") != 1 {
		t.Fatalf("%q is not one line of JSON: %v", text, err)
	}
	if _, err := time.Parse(time.RFC3339, line.Ts); err != nil || line.Level != "error" || line.Msg != "mounts below \"/a\nb\" stay" || line.Error != "busy" {
		t.Errorf("the line is %+v, %v", line, err)
	}
	for err, want := range map[error]string{nil: "mounts below \"/a\nb\" stay\n", errors.New("busy"): "mounts below \"/a\nb\" stay: busy\n"} {
		if got := printed(ForPeople, err); got != want {
			t.Errorf("people are told %q, want %q", got, want)
		}
	}
}
