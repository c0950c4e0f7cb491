package farm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/kv"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
)

func TestDrains(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", drainsFile)
	for _, k := range []keeper{
		keptFile(path), keptRecord{kv.NewMemory(0), kv.Key{Bucket: names.DrainsBucket, Digest: digest.Of(digest.SHA256, nil)}},
	} {
		testDrains(t, k)
	}
	for _, text := range []string{"", "{}", `[{}]`, `[{"host":`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if list, err := loadDrains(t.Context(), keptFile(path)); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, %v", text, list, err)
		}
	}
}

// testDrains writes and reads with a keeper that has nothing.
func testDrains(t *testing.T, k keeper) {
	t.Helper()
	if list, err := loadDrains(t.Context(), k); err != nil || len(list) != 0 {
		t.Errorf("without any: %v, %v", list, err)
	}
	want := "host=a*,slot=1 host=?"
	var patterns []pattern.Pattern
	for s := range strings.FieldsSeq(want) {
		p, err := pattern.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		patterns = append(patterns, p)
	}
	for range 2 {
		if err := keepDrains(t.Context(), k, patterns); err != nil {
			t.Fatal(err)
		}
	}
	list, err := loadDrains(t.Context(), k)
	var got []string
	for _, p := range list {
		got = append(got, p.String())
	}
	if err != nil || strings.Join(got, " ") != want {
		t.Errorf("read %v, %v", got, err)
	}
}
