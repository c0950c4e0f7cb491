package bazel

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/test/programs"
)

// librarySource says where the sources of one library of testdata/bazel come from.
type librarySource struct {
	library string   // folder below third_party
	module  string   // Go module with version; empty when folder is set
	folder  string   // folder of this machine
	debian  string   // package that brings folder
	parts   []string // the parts to copy
}

var librarySources = []librarySource{
	{
		library: "googletest",
		folder:  "/usr/src/googletest",
		debian:  "googletest",
		parts: []string{
			"googlemock/include", "googlemock/src",
			"googletest/include", "googletest/samples", "googletest/src",
		},
	},
	{
		library: "zstd",
		module:  "github.com/DataDog/zstd@v1.5.6",
		parts:   []string{"."},
	},
	{
		library: "flatbuffers",
		module:  "github.com/google/flatbuffers@v23.5.26+incompatible",
		parts:   []string{"include", "src", "tests"},
	},
}

// Plain makes a scratch copy of testdata/bazel, without the sources of libraries.
func Plain(t *testing.T) (workspace string) {
	t.Helper()
	workspace = t.TempDir()
	if err := os.CopyFS(workspace, os.DirFS(filepath.Join(programs.Root(t), "testdata", "bazel"))); err != nil {
		t.Fatalf("copy workspace: %v", err)
	}
	return workspace
}

// Workspace makes a scratch copy of testdata/bazel with the libraries' sources in place.
func Workspace(t *testing.T) string {
	t.Helper()
	workspace := Plain(t)
	for _, s := range librarySources {
		upstream := filepath.Join(workspace, "third_party", s.library, "upstream")
		from := s.find(t)
		for _, part := range s.parts {
			if err := copySources(filepath.Join(upstream, part), filepath.Join(from, part)); err != nil {
				t.Fatalf("copy sources of %s: %v", s.library, err)
			}
		}
	}
	return workspace
}

// find returns the folder that holds the sources, after fetching the module where it is one.
func (s librarySource) find(t *testing.T) string {
	t.Helper()
	if s.module == "" {
		if _, err := os.Stat(s.folder); errors.Is(err, fs.ErrNotExist) {
			programs.Needs(t, "%s is missing: apt-get install %s", s.folder, s.debian)
		}
		return s.folder
	}
	// Outside of any module, so that no go.mod can be changed by it.
	cmd := exec.Command("go", "mod", "download", "-json", s.module)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &module); jsonErr != nil {
		t.Fatalf("download %s: %v: %v", s.module, err, jsonErr)
	}
	if module.Error != "" {
		programs.Needs(t, "%s is not in the module cache and cannot be fetched: %s", s.module, module.Error)
	}
	return module.Dir
}

// copySources copies a folder without the build files that would make packages of parts of it.
func copySources(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch d.Name() {
		case "BUILD", "BUILD.bazel", "WORKSPACE", "WORKSPACE.bazel":
			return nil
		}
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
}

// Debian returns Debian's bazel, or ends the test saying how to get it.
func Debian(t *testing.T) string {
	t.Helper()
	needsCompiler(t)
	path, err := exec.LookPath("bazel")
	if err != nil {
		programs.Needs(t, "bazel is missing: apt-get install bazel-bootstrap")
	}
	return path
}

// Old installs bazel 2.1.0 from npm into a scratch folder and returns its path.
func Old(t *testing.T) string {
	t.Helper()
	needsCompiler(t)
	npm, err := exec.LookPath("npm")
	if err != nil {
		programs.Needs(t, "npm is missing: apt-get install npm")
	}
	dir := t.TempDir()
	cmd := exec.Command(npm, "install", "--prefix", dir, "--prefer-offline", "--no-save",
		"--no-audit", "--no-fund", "--ignore-scripts", "@bazel/bazel-linux_x64@2.1.0")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		programs.Needs(t, "bazel 2.1.0 cannot be installed by npm: %v\n%s", err, out)
	}
	path := filepath.Join(dir, "node_modules/@bazel/bazel-linux_x64/bazel-2.1.0-linux-x86_64")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatalf("install bazel 2.1.0: %v", err)
	}
	return path
}

// needsCompiler ends a test that takes minutes when short ones are asked for, or when there
// is nothing to compile with.
func needsCompiler(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds three libraries with bazel, which takes minutes")
	}
	if _, err := exec.LookPath("g++"); err != nil {
		programs.Needs(t, "g++ is missing: apt-get install g++")
	}
}
