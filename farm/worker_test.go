package farm

import (
	"path/filepath"
	"testing"
)

// TestRelativeFolders has two workers whose --data is the same word, in different folders.
func TestRelativeFolders(t *testing.T) {
	named := map[string]bool{}
	for range 2 {
		here := t.TempDir()
		t.Chdir(here)
		w := &Worker{Data: "data", Mount: "mount"}
		if err := w.absolute(); err != nil {
			t.Fatal(err)
		}
		if w.Mount != filepath.Join(here, "mount") || w.below(w.CacheDir, "cas") != filepath.Join(here, "data", "cas") {
			t.Errorf("mounts at %s, store at %s", w.Mount, w.below(w.CacheDir, "cas"))
		}
		id, err := w.identity()
		if err != nil {
			t.Fatal(err)
		}
		named[id["data"]] = true
	}
	if len(named) != 2 {
		t.Errorf("two workers have one identity: %v", named)
	}
}
