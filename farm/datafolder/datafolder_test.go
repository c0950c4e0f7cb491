package datafolder

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestOneProcessAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	program := filepath.Base(os.Args[0])
	first, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir)
	if want := dir + " is in use by another process: " + strconv.Itoa(os.Getpid()) + " (" + program + ")"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if want := "format 1\nprocess " + strconv.Itoa(os.Getpid()) + " " + program + "\n"; err != nil || string(text) != want {
		t.Errorf("%q, %v; want %q", text, err, want)
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},                         // a process was killed before it wrote
		{"format 1\nprocess 7 up\n", ""}, // its own
		{"format 2\n", "newer version"},  // of a later program
		{"format 12\nmore\n", "format is 12"},
		{"format x\n", `format "x"`},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, ownerFile)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(dir)
		if c.want == "" {
			if err != nil {
				t.Errorf("%q: %v", c.text, err)
				continue
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%q: %v, want %q and the folder", c.text, err, c.want)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != c.text {
			t.Errorf("%q became %q, %v", c.text, text, err)
		}
	}
}
