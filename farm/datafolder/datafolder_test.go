package datafolder

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestOthersCannotLock: the file is for its owner alone, also if it was made with another mode, for who opens it can lock it.
func TestOthersCannotLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ownerFile)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFoldersOfOthers: what another user has made where everybody may is not used, nor what is below it.
func TestFoldersOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("gives folders to other users, as root can")
	}
	const other = 12345
	for name, c := range map[string]struct {
		mode  os.FileMode // of the place
		owner int
		want  string
	}{
		"of another, where everybody may": {os.ModeSticky | 0o777, other, "belongs to user 12345"},
		"own, where everybody may":        {os.ModeSticky | 0o777, 0, ""},
		"of another, in a usual place":    {0o755, other, ""},
	} {
		place := filepath.Join(t.TempDir(), "place")
		made := filepath.Join(place, "made")
		if err := errors.Join(os.MkdirAll(made, 0o755), os.Chmod(place, c.mode), os.Chown(made, c.owner, c.owner)); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{made, filepath.Join(made, "below", "it")} {
			f, err := Open(dir)
			if err == nil {
				err = f.Close()
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
	}
}

// TestFullDisk has no room for who has the folder, which fails nothing, and none for the format, which does.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	f := &Folder{lock: full}
	if err := f.write(format); err != nil {
		t.Errorf("a folder whose format is known: %v", err)
	}
	if err := f.write(0); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a folder whose format is not known: %v", err)
	}
}
