package farm

import (
	"fmt"
	"os"
	"testing"
)

// TestFilesOfTheEnvironment: keys named in environment variables are hidden, like those named in
// flags.
func TestFilesOfTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := dir + "/" + name
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, open, otel := file("key", 0o600), file("open", 0o644), file("otel", 0o644)
	got := environmentFiles([]string{"KEY=" + key, "SHELL=" + open, "OTEL_EXPORTER_OTLP_CERTIFICATE=" + otel, "HOME=" + dir, "X=key", "Y"})
	if want := []string{key, otel}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("hides %v, want %v", got, want)
	}
}
