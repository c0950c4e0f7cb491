package datafolder

import (
	"errors"
	"fmt"
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
	first, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), dir)
	if want := dir + " is in use by another process: " + strconv.Itoa(os.Getpid()) + " (" + program + ")"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(t.Context(), dir)
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
		checked := Check(dir)
		f, err := Open(t.Context(), dir)
		if fmt.Sprint(checked) != fmt.Sprint(err) {
			t.Errorf("%q: Check says %v, Open %v", c.text, checked, err)
		}
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

// TestOthersCannotLock: only the owner can open the file, even if it was created with another mode,
// because anyone who can open it can lock it.
func TestOthersCannotLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ownerFile)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f, err := Open(t.Context(), dir)
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

// TestFullDisk has no space to write the owner of the folder, which is not an error, and none to
// write the format, which is.
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
	if err := f.write(0); !errors.Is(err, unix.ENOSPC) || !strings.HasSuffix(err.Error(), "(make room on that disk, or choose another folder with --data)") {
		t.Errorf("a folder whose format is not known: %v", err)
	}
}

// TestAdvice: an error says once what to do, and is still the same error.
func TestAdvice(t *testing.T) {
	full, other := fmt.Errorf("write: %w", unix.ENOSPC), errors.New("no lock")
	for _, c := range []struct {
		err, is error
		want    string
	}{
		{Advised(full), unix.ENOSPC, "write: no space left on device (make room on that disk, or choose another folder with --data)"},
		{WithRoom(fmt.Errorf("start: %w", Advised(full))), unix.ENOSPC, "start: write: no space left on device (make room on that disk, or choose another folder with --data)"},
		{Advised(unix.ENOTDIR), unix.ENOTDIR, "not a directory (choose another folder with --data)"},
		{WithRoom(other), other, "no lock"},
	} {
		if !errors.Is(c.err, c.is) || c.err.Error() != c.want {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
	if Advised(nil) != nil || WithRoom(nil) != nil {
		t.Error("no error needs no advice")
	}
	_, err := Open(t.Context(), "/proc/there/is/none")
	if err == nil || !strings.HasSuffix(err.Error(), "(choose another folder with --data)") {
		t.Errorf("a folder that cannot be made: %v", err)
	}
}
