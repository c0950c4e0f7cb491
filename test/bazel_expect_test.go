package test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// bigSize is what //genrules:big makes: lines of ten bytes that count from bigFirst.
const (
	bigSize  = 200 << 20
	bigFirst = 100_000_000
)

// bazelTests is the expected status of every test target, with a line of its log.
var bazelTests = map[string]struct{ status, logged string }{
	"//tests:pass":    {"PASSED", "this line is for stdout\nthis line is for stderr\nthis line is from a data file\n"},
	"//tests:fail":    {"FAILED", "about to fail with 3\n"},
	"//tests:hang":    {"TIMEOUT", "about to hang\n"},
	"//tests:crash":   {"FAILED", "about to abort\n"},
	"//tests:scratch": {"PASSED", ""},
	"//tests:sharded": {"PASSED", "shard 0 of 3\n"},

	"//schema:inventory_test":                    {"PASSED", "[  PASSED  ] 3 tests."},
	"//third_party/flatbuffers:flatbuffers_test": {"PASSED", "ALL TESTS PASSED"},
	"//third_party/googletest:sample1_test":      {"PASSED", "[  PASSED  ] 6 tests."},
	"//third_party/googletest:sample2_test":      {"PASSED", "[  PASSED  ]"},
	"//third_party/googletest:sample3_test":      {"PASSED", "[  PASSED  ]"},
	"//third_party/googletest:sample4_test":      {"PASSED", "[  PASSED  ]"},
	"//third_party/googletest:sample5_test":      {"PASSED", "[  PASSED  ]"},
	"//third_party/googletest:sample6_test":      {"PASSED", "[  PASSED  ]"},
	"//third_party/googletest:sample7_test":      {"PASSED", "[  PASSED  ]"},
	"//third_party/googletest:sample8_test":      {"PASSED", "[  PASSED  ]"},
}

// clean removes the outputs that the client has.
func (c *bazelClient) clean(t *testing.T) {
	t.Helper()
	if code, out := c.command(c.builds, t, "clean"); code != 0 {
		t.Fatalf("bazel clean: exit code %d\n%s", code, out)
	}
}

// build builds targets and fails the test unless all of them could be built.
func (c *bazelClient) build(t *testing.T, args ...string) bazelRun {
	t.Helper()
	r := c.run(t, "build", args...)
	if r.exitCode != 0 {
		t.Fatalf("bazel build: exit code %d\n%s", r.exitCode, tail(r.output, 100))
	}
	return r
}

// count returns how many spawns of a mnemonic the run had.
func (r bazelRun) count(mnemonic string) (n int) {
	for _, s := range r.spawns {
		if s.Mnemonic == mnemonic {
			n++
		}
	}
	return n
}

// expectRunners fails the test unless every spawn of the run came by its result as wanted:
// "remote" for an action that the farm executed, "remote cache hit" for one it remembered.
func expectRunners(t *testing.T, r bazelRun, want string) {
	t.Helper()
	if len(r.spawns) == 0 {
		t.Error("no action was looked up or run")
	}
	for _, s := range r.spawns {
		if s.Runner != want {
			t.Errorf("%s of %q: %s, want %s", s.Mnemonic, s.ListedOutputs, s.Runner, want)
		}
	}
}

// expectTests runs every test. Those that pass come from the cache if cached; those that do not
// pass must never come from it.
func expectTests(t *testing.T, c *bazelClient, cached bool) {
	t.Helper()
	const testsFailed = 3
	r := c.run(t, "test", "//...")
	if r.exitCode != testsFailed {
		t.Fatalf("bazel test: exit code %d, want %d\n%s", r.exitCode, testsFailed, tail(r.output, 100))
	}
	if len(r.tests) != len(bazelTests) {
		t.Errorf("%d tests ran, want %d", len(r.tests), len(bazelTests))
	}
	for label, want := range bazelTests {
		for _, got := range r.tests[label] {
			if got.Status != want.status {
				t.Errorf("%s: %s, want %s", label, got.Status, want.status)
			}
			if hit := got.ExecutionInfo.CachedRemotely; hit != (cached && want.status == "PASSED") {
				t.Errorf("%s: %s, result from the cache: %v", label, got.Status, hit)
			}
		}
		if log := testLog(t, c.workspace, label); !strings.Contains(log, want.logged) {
			t.Errorf("%s: its log lacks %q:\n%s", label, want.logged, tail(log, 20))
		}
	}
}

// testLog returns the log of a test, or of its first shard if it has several.
func testLog(t *testing.T, workspace, label string) string {
	t.Helper()
	dir := filepath.Join(workspace, "bazel-testlogs", strings.ReplaceAll(label[2:], ":", "/"))
	log, err := os.ReadFile(filepath.Join(dir, "test.log"))
	if errors.Is(err, fs.ErrNotExist) {
		log, err = os.ReadFile(filepath.Join(dir, "shard_1_of_3/test.log"))
	}
	if err != nil {
		t.Errorf("%s: %v", label, err)
	}
	return string(log)
}

// expectGenrules checks what the targets of genrules/ made.
func expectGenrules(t *testing.T, workspace string) {
	t.Helper()
	expectFile(t, workspace, "genrules/big_size.txt", strconv.Itoa(bigSize)+"\n")
	expectFile(t, workspace, "genrules/inputless.txt", "0\n")
	expectFile(t, workspace, "genrules/outputs/deep/er/plain.txt", "plain\n")
	expectFile(t, workspace, "genrules/outputs/empty", "")
	expectFile(t, workspace, "genrules/shouted.txt", "PLAIN\nPLAIN\n")

	got := fileDigest(t, filepath.Join(workspace, "bazel-bin/genrules/big.txt"))
	if want := bigDigest(); got != want {
		t.Errorf("genrules/big.txt has digest %s, want %s", got, want)
	}

	environment, err := os.ReadFile(filepath.Join(workspace, "bazel-bin/genrules/environment.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(environment)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "PATH":
			if want := "/bin:/usr/bin:/usr/local/bin"; value != want {
				t.Errorf("an action's PATH is %s, want %s", value, want)
			}
		case "PWD", "SHLVL", "TMPDIR", "_": // set by the shell and the worker
		default:
			t.Errorf("an action sees %s=%s, which its Command does not set", name, value)
		}
	}
}

// expectTree checks the downloaded tree artifact, its symlinks, and what the action that read it
// saw of it.
func expectTree(t *testing.T, workspace string) {
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
	expectFile(t, workspace, "trees/listing.txt",
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

// outputDigests lists the outputs of genrules/ and trees/ with their contents and link targets.
func outputDigests(t *testing.T, workspace string) []string {
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

func expectFile(t *testing.T, workspace, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(workspace, "bazel-bin", name))
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
	}
}

// expectNoProcess fails the test if a process with exactly these arguments is alive, and ends it.
func expectNoProcess(t *testing.T, args ...string) {
	t.Helper()
	want := []byte(strings.Join(args, "\x00") + "\x00")
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		// A process that ends meanwhile takes its file along.
		if got, err := os.ReadFile(line); err != nil || !bytes.Equal(got, want) {
			continue
		}
		t.Errorf("%s: %q outlived its action", line, args)
		if pid, err := strconv.Atoi(strings.Split(line, "/")[2]); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by now
		}
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

// bigDigest is the digest that the output of //genrules:big must have.
func bigDigest() string {
	h := sha256.New()
	line := make([]byte, 0, 10)
	for n := bigFirst; n < bigFirst+bigSize/10; n++ {
		line = append(strconv.AppendInt(line[:0], int64(n), 10), '\n')
		h.Write(line)
	}
	return hex.EncodeToString(h.Sum(nil))
}
