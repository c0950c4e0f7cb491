package flags

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"": 0, "0": 0, "1234": 1234, "5B": 5, "7k": 7 << 10, "500M": 500 << 20, "20G": 20 << 30,
		"20GB": 20 << 30, "20GiB": 20 << 30, "3T": 3 << 40,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"x", "-1", "1.5G", "G", "10GX", "10 G", "99999999T", "1BB"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", in, got)
		}
	}
}

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
		log, err := NewLogger(json)
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
