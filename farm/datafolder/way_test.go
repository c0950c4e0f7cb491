package datafolder

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// opened opens and closes a folder, and returns the error.
func opened(t *testing.T, dir string) error {
	t.Helper()
	f, err := Open(t.Context(), dir)
	if err != nil {
		return err
	}
	return f.Close()
}

// TestFoldersOfOthers: a folder that another user made in a world-writable place is not used, nor
// anything below it, and nothing is created there.
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
		"of another, where everybody may":                {os.ModeSticky | 0o777, other, "belongs to user 12345"},
		"of another, where everybody may change it, too": {0o777, other, "belongs to user 12345"},
		"of another, where everybody but a group may":    {0o707, other, "belongs to user 12345"},
		"own, where everybody may":                       {os.ModeSticky | 0o777, 0, ""},
		"own, in a volume that everybody may change":     {0o777, 0, ""},
		"of another, in a usual place":                   {0o755, other, ""},
	} {
		place := filepath.Join(t.TempDir(), "place")
		made, linked, apart := filepath.Join(place, "made"), filepath.Join(place, "linked"), filepath.Join(t.TempDir(), "apart")
		if err := errors.Join(
			os.MkdirAll(made, 0o755), os.Symlink(apart, linked), os.Mkdir(apart, 0o755),
			os.Chmod(place, c.mode), os.Chown(made, c.owner, c.owner), os.Lchown(linked, c.owner, c.owner),
		); err != nil {
			t.Fatal(err)
		}
		across := filepath.Join(t.TempDir(), "across") // of root, in a place of root's
		if err := os.Symlink(filepath.Join("..", filepath.Base(filepath.Dir(place)), "nothing", "..", "place", "linked"), across); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(filepath.Dir(place), "nothing"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{made, filepath.Join(made, "below", "it"), linked, filepath.Join(linked, "below", "it"), across} {
			err := opened(t, dir)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s: %v, want %q", name, dir, err, c.want)
			}
		}
		for _, below := range []string{made, apart} {
			list, err := os.ReadDir(below)
			if err != nil || (len(list) == 0) != (c.want != "") {
				t.Errorf("%s: %s has %v, %v", name, below, list, err)
			}
		}
	}
}

// TestWays leads to a folder as the kernel does.
func TestWays(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := errors.Join(
		os.WriteFile("file", nil, 0o600), os.Symlink("round", "round"), os.Symlink("missing/below", "forward"),
		os.Symlink(filepath.Join(dir, "missing")+"/../there/.", "absolute"), os.Mkdir("there", 0o755),
	); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir, made string
		want      error
	}{
		{".", ".", nil},
		{"a/b//c/", "a/b/c", nil},
		{filepath.Join(dir, "x"), "x", nil},
		{"forward", "missing/below", nil},
		{"absolute/y", "there/y", nil},
		{"file", "", unix.ENOTDIR},
		{"file/below", "", unix.ENOTDIR},
		{"round", "", unix.ELOOP},
	} {
		if err := opened(t, c.dir); !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), strings.Split(c.dir, "/")[0]) {
			t.Errorf("%s: %v, want %v", c.dir, err, c.want)
		}
		if c.want != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, c.made, ownerFile)); err != nil {
			t.Errorf("%s: %v", c.dir, err)
		}
	}
}
