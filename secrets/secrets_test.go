package secrets

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const a, b = "0123456789abcdef0123456789abcdef", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	for text, want := range map[string]string{
		a:                            a,
		a + "\n":                     a,
		"\n " + a + "\r\n\n" + b:     a + " " + b,
		"":                           "",
		"\n\n":                       "",
		a[1:] + "\n":                 "",
		a + "\n" + b[1:]:             "",
		strings.Repeat("\x00", 64):   "",
		a + "\n" + a[:31] + "\x00\n": "",
		a + "\xff\n":                 "",
	} {
		list, err := Parse([]byte(text))
		if got := strings.Join(list, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestOfOwn: a secret lasts as long as its file is one, which others may not look at.
func TestOfOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "secret")
	open := func() string {
		t.Helper()
		s, err := OfOwn(file)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
		if again, err := OfOwn(file); err != nil || again != s {
			t.Fatalf("%q is %q when it is read again (%v)", s, again, err)
		}
		return s
	}
	last := open()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func() error{
		"cut short":     func() error { return os.WriteFile(file, whole[:20], 0o600) },
		"empty":         func() error { return os.WriteFile(file, nil, 0o600) },
		"zeros":         func() error { return os.WriteFile(file, make([]byte, len(whole)), 0o600) },
		"zeros behind":  func() error { return os.WriteFile(file, append(bytes.Clone(whole[:40]), make([]byte, 13)...), 0o600) },
		"twice":         func() error { return os.WriteFile(file, append(bytes.Clone(whole), whole...), 0o600) },
		"for everybody": func() error { return os.Chmod(file, 0o604) },
		"gone":          func() error { return os.Remove(file) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		s := open()
		if s == last || strings.HasPrefix(s, string(whole[:20])) {
			t.Errorf("%s: %q is as before", what, s)
		}
		last = s
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); err != nil || left != nil {
		t.Errorf("%q are left (%v)", left, err)
	}
}
