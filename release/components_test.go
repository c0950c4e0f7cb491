package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForgetTool: two tools that list the same, and are not the same bytes, make the same list.
func TestForgetTool(t *testing.T) {
	var first string
	for i, sum := range []string{"d41d8cd98f00b204e9800998ecf8427e", "0cc175b9c0f1b6a831c399e269772661"} {
		list := filepath.Join(t.TempDir(), "list")
		text := `{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"tools": [{"name": "cyclonedx-gomod", "version": "v1",
			"hashes": [{"alg": "MD5", "content": "` + sum + `"}]}]}, "components": [{"type": "library", "name": "std", "version": "go1.26",
			"hashes": [{"alg": "MD5", "content": "900150983cd24fb0d6963f7d28e17f72"}]}]}`
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := forgetTool(list); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case i == 0:
			first = string(content)
		case string(content) != first:
			t.Errorf("lists differ:\n%s\n%s", first, content)
		}
	}
	for _, want := range []string{"cyclonedx-gomod", "900150983cd24fb0d6963f7d28e17f72", "go1.26"} {
		if !strings.Contains(first, want) {
			t.Errorf("%s is gone: %s", want, first)
		}
	}
}
