package farm

import (
	"path/filepath"
	"strings"
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

// TestBrowserURL has addresses of pages that are none: the error says which setting is wrong.
func TestBrowserURL(t *testing.T) {
	for address, good := range map[string]bool{"": true, "http://10.0.0.9:7984": true, "10.0.0.9:7984": false} {
		b, err := (&Worker{BrowserURL: address}).browser()
		if (err == nil) != good || (b != nil) != (good && address != "") {
			t.Errorf("%q: %v, %v", address, b, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "tuning.browser_url: ") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestIdentityIsText: a folder whose name no message can have is reported, not retried for ever.
func TestIdentityIsText(t *testing.T) {
	w := &Worker{Data: "/data\xff"}
	if id, err := w.identity(); err == nil || !strings.Contains(err.Error(), "--id") {
		t.Errorf("%v, %v", id, err)
	}
}
