package reference

import (
	"os"
	"path/filepath"
	"testing"
)

// Golden has the test fail if a file is not what is generated. With FORERUNNER_GENERATE it writes the file.
func Golden(t *testing.T, file, text string) {
	t.Helper()
	if os.Getenv("FORERUNNER_GENERATE") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	there, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(there) != text {
		t.Errorf("%s is not what is generated: run make generate", file)
	}
}
