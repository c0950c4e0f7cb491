package bazel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ExpectRunners fails the test unless every spawn of the run had the wanted runner: "remote" for an
// action that the farm executed, "remote cache hit" for a cached one.
func ExpectRunners(t *testing.T, r Run, want string) {
	t.Helper()
	if len(r.Spawns) == 0 {
		t.Error("no action was looked up or run")
	}
	for _, s := range r.Spawns {
		if s.Runner != want {
			t.Errorf("%s of %q: %s, want %s", s.Mnemonic, s.ListedOutputs, s.Runner, want)
		}
	}
}

// ExpectTree checks the downloaded tree artifact, its symlinks, and the output of the action that
// read it.
func ExpectTree(t *testing.T, workspace string) {
	t.Helper()
	tree := filepath.Join(workspace, "bazel-bin/trees/tree")
	for link, want := range map[string]string{
		"docs/sibling": "a.txt", "docs/up": "../bin/run", "folder": "docs/old",
	} {
		if got, err := os.Readlink(filepath.Join(tree, link)); err != nil || got != want {
			t.Errorf("symlink trees/tree/%s: %q, %v, want %q", link, got, err, want)
		}
	}
	var listing []string
	for _, name := range filesBehindLinks(t, tree, ".") {
		digest := fileDigest(t, filepath.Join(tree, name))
		listing = append(listing, digest+"  ./"+name+"\n")
	}
	if len(listing) != 200+6+201 {
		t.Errorf("trees/tree shows %d files, want 407", len(listing))
	}
	ExpectFile(t, workspace, "trees/listing.txt",
		strings.Join(listing, "")+"ran from a tree\nsecond\n")
}

// filesBehindLinks returns the sorted paths of all files below dir, through symlinks too.
func filesBehindLinks(t *testing.T, root, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		info, err := os.Stat(filepath.Join(root, name))
		switch {
		case err != nil:
			t.Error(err)
		case info.IsDir():
			files = append(files, filesBehindLinks(t, root, name)...)
		default:
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return files
}

// OutputDigests lists the outputs of genrules/ and trees/ with their contents and link targets.
func OutputDigests(t *testing.T, workspace string) []string {
	t.Helper()
	bin, err := filepath.EvalSymlinks(filepath.Join(workspace, "bazel-bin"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, dir := range []string{"genrules", "trees"} {
		err := filepath.WalkDir(filepath.Join(bin, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content := "-> "
			if d.Type()&fs.ModeSymlink != 0 {
				target, err := os.Readlink(path)
				if err != nil {
					return err
				}
				content += target
			} else {
				content = fileDigest(t, path)
			}
			lines = append(lines, fmt.Sprintf("%s %s", strings.TrimPrefix(path, bin), content))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return lines
}

// ExpectFile compares the content of an output, whose name is relative to bazel-bin.
func ExpectFile(t *testing.T, workspace, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(workspace, "bazel-bin", name))
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
	}
}

func fileDigest(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := f.WriteTo(h); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}
