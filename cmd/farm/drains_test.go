package farm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/scheduler"
)

func TestDrainsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", drainsFile)
	if list, err := loadDrains(path); err != nil || len(list) != 0 {
		t.Errorf("without a file: %v, %v", list, err)
	}
	want := "host=a*,slot=1 host=?"
	var patterns []scheduler.Pattern
	for s := range strings.FieldsSeq(want) {
		p, err := scheduler.ParsePattern(s)
		if err != nil {
			t.Fatal(err)
		}
		patterns = append(patterns, p)
	}
	for range 2 {
		if err := keepDrains(path, patterns); err != nil {
			t.Fatal(err)
		}
	}
	list, err := loadDrains(path)
	var got []string
	for _, p := range list {
		got = append(got, p.String())
	}
	if err != nil || strings.Join(got, " ") != want {
		t.Errorf("read %v, %v", got, err)
	}
	for _, text := range []string{"", "{}", `[{}]`, `[{"host":`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if list, err := loadDrains(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, %v", text, list, err)
		}
	}
}
