package flags

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
)

// TestNoLineIsLeftOut has more lines than a logger that samples them lets through.
func TestNoLineIsLeftOut(t *testing.T) {
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	for _, json := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "log")
		var err error
		if os.Stderr, err = os.Create(file); err != nil {
			t.Fatal(err)
		}
		log, err := Logging{JSON: json}.NewLogger()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			log.Info("action", zap.Int("number", i))
		}
		text, err := os.ReadFile(file)
		if n := bytes.Count(text, []byte{'\n'}); err != nil || n != 1000 {
			t.Errorf("json %t: 1000 actions have %d lines, %v", json, n, err)
		}
		if err := os.Stderr.Close(); err != nil {
			t.Error(err)
		}
	}
}
