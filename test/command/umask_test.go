package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/test/programs"
)

// TestUmask: what a command sees of its folders does not depend on the umask of the farm, whether its
// inputs are mounted, copied or missing, with a sandbox and without one; and other users of the machine
// see no file of the farm.
func TestUmask(t *testing.T) {
	for name, flags := range map[string][]string{
		"sandbox": nil,
		"mounted": {"--config", "mounted.yaml"},
		"user":    {"--sandbox", "none", "--user", "12345:54321"},
	} {
		t.Run(name, func(t *testing.T) {
			var want string
			for _, mask := range []int{0o022, 0o077} {
				got := modesWith(t, mask, flags)
				if want == "" {
					want = got
				}
				if got != want || !strings.Contains(got, "755 ./out/deep") {
					t.Errorf("umask %03o:\n%s\numask 022:\n%s", mask, got, want)
				}
			}
		})
	}
}

// modesWith returns the modes of the folders of two commands, of a farm with that umask.
func modesWith(t *testing.T, mask int, flags []string) (modes string) {
	t.Helper()
	f := programs.New(t, programs.OwnSandbox)
	f.Write("mounted.yaml", "tuning:\n  copied_roots: \"0\"\n")
	f.Write("in/sub/text", "text\n")
	if err := os.Chmod(f.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(f.Dir, "data")
	was := unix.Umask(mask)
	farm, address := f.Up(data, append(flags, "--keep-records", "0")...) // which would make a private folder first
	unix.Umask(was)
	for i, inputs := range [][]string{{"--input", "in"}, {"--input", "in"}, nil, nil} {
		p := f.Exec(address, append(inputs, "--output", "out/deep/file", "--", "/bin/sh", "-c",
			fmt.Sprintf("stat -c '%%a %%n' $(find . -type d | sort); >new; stat -c '%%a %%n' new; touch out/deep/file; : %d", i))...)
		if code := p.Wait(); code != 0 {
			t.Fatalf("umask %03o: exit code %d\n%s", mask, code, &p.Stderr)
		}
		modes += p.Stdout.String()
	}
	if p := f.Start("forerunner", "workers", "drain", "host=nobody", "--reason", "secret", "--remote", address); p.Wait() != 0 {
		t.Fatalf("drain: %s", &p.Stderr)
	}
	expectPrivate(t, data)
	farm.Drain()
	return modes
}

// expectPrivate fails if other users can read a file below a folder.
func expectPrivate(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was temporary
		} else if err != nil {
			return err
		}
		info, err := e.Info()
		switch {
		case err != nil:
			return nil
		case e.IsDir() && info.Mode()&0o001 == 0:
			return fs.SkipDir
		case info.Mode().IsRegular() && info.Mode()&0o004 != 0:
			t.Errorf("other users can read %s", p)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
