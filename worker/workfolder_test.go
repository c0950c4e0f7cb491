package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs"
)

// TestFreshFolders: whatever an action without inputs does in its root and in /tmp, and whatever it
// prints, the next one finds both in their original state, and empty output files.
func TestFreshFolders(t *testing.T) {
	for _, method := range []vfs.Method{vfs.FUSE, vfs.HardLink} {
		t.Run(string(method), func(t *testing.T) {
			f := newSandboxedFarm(t, method, nil)
			const look = "; for d in . /tmp; do stat -c '%a %u %h' $d; ls -A $d; done"
			want := ""
			for _, did := range []string{
				"true", "true", "echo said", "echo said >&2", "seq 5000; seq 5000 >&2", "touch x /tmp/x", "mkdir -p a/b /tmp/a/b",
				"touch x /tmp/x; rm x /tmp/x", "chmod 0700 . /tmp", "chown 1:1 . /tmp", "touch -d 1999-01-01 . /tmp", "exit 3", "true",
			} {
				r := f.run(t, spec{shell: "true" + look})
				assertOK(t, r)
				got := string(r.GetResult().GetStdoutRaw())
				if want == "" {
					want = got
				}
				if got != want || len(r.GetResult().GetStderrRaw()) > 0 {
					t.Fatalf("before %q: root and /tmp are %q, were %q at first; stderr %q", did, got, want, r.GetResult().GetStderrRaw())
				}
				f.run(t, spec{shell: did})
			}
		})
	}
}

// TestFoldersOfCommandsTogether: commands that can hand descriptors to each other never
// get the folder of another one.
func TestFoldersOfCommandsTogether(t *testing.T) {
	f := newFarmOn(t, vfs.Options{Method: vfs.FUSE}) // without a sandbox, where all are at one place
	said := map[string]bool{}
	for range 3 {
		r := f.run(t, spec{shell: "pwd"})
		assertOK(t, r)
		dir := string(r.GetResult().GetStdoutRaw())
		if !strings.Contains(dir, "/upper/.plain/") || said[dir] {
			t.Errorf("a command ran in %s, others in %v", dir, said)
		}
		said[dir] = true
	}
}

// TestWorkFolder: output files are removed from the folder before another action gets it. The
// folder for temporary files is reused only if it is untouched.
func TestWorkFolder(t *testing.T) {
	f, err := makeWorkFolder(filepath.Join(t.TempDir(), "0"))
	check(t, err)
	check(t, os.WriteFile(f.stdout(), []byte("said"), 0o600))
	check(t, os.WriteFile(f.stderr(), nil, 0o600))
	if !f.clear() {
		t.Error("a folder in which only was printed is not clear")
	}
	if _, err := os.Stat(f.stdout()); !os.IsNotExist(err) {
		t.Errorf("what was printed: %v", err)
	}
	untouched := inodeOf(t, f.temp.Path())
	if !f.clear() || inodeOf(t, f.temp.Path()) != untouched {
		t.Error("an untouched folder for temporary files is not reused")
	}
	// An open file keeps its folder from being made anew with the same inode.
	touched, err := os.Open(f.temp.Path())
	check(t, err)
	defer touched.Close()
	check(t, os.WriteFile(filepath.Join(f.temp.Path(), "left"), nil, 0o600))
	if !f.clear() || inodeOf(t, f.temp.Path()) == untouched {
		t.Error("a touched folder for temporary files is reused")
	}
	if left, err := os.ReadDir(f.temp.Path()); err != nil || len(left) > 0 {
		t.Errorf("temporary files of an earlier action: %v, %v", left, err)
	}
}

func inodeOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	check(t, unix.Lstat(path, &st))
	return st.Ino
}
