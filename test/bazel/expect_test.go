package bazel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/test/programs"
)

// bigSize is the size of the output of //genrules:big: lines of ten bytes that count from bigFirst.
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
	"//third_party/googletest:sample5_test":      {"PASSED", "[  PASSED  ]"},
	"//third_party/googletest:sample8_test":      {"PASSED", "[  PASSED  ]"},
}

// expectTests runs every test. Those that pass come from the cache if cached; those that do not
// pass must never come from it.
func expectTests(t *testing.T, c *Client, cached bool) {
	t.Helper()
	r := c.Run(t, "test", "//...")
	if r.ExitCode != testsFailed {
		t.Fatalf("bazel test: exit code %d, want %d\n%s", r.ExitCode, testsFailed, programs.Tail(r.Output, 100))
	}
	if len(r.Tests) != len(bazelTests) {
		t.Errorf("%d tests ran, want %d", len(r.Tests), len(bazelTests))
	}
	for label, want := range bazelTests {
		for _, got := range r.Tests[label] {
			if got.Status != want.status {
				t.Errorf("%s: %s, want %s", label, got.Status, want.status)
			}
			if hit := got.ExecutionInfo.CachedRemotely; hit != (cached && want.status == "PASSED") {
				t.Errorf("%s: %s, result from the cache: %v", label, got.Status, hit)
			}
		}
		if log := testLog(t, c.workspace, label); !strings.Contains(log, want.logged) {
			t.Errorf("%s: its log lacks %q:\n%s", label, want.logged, programs.Tail(log, 20))
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
	ExpectFile(t, workspace, "genrules/big_size.txt", strconv.Itoa(bigSize)+"\n")
	ExpectFile(t, workspace, "genrules/inputless.txt", "0\n")
	ExpectFile(t, workspace, "genrules/outputs/deep/er/plain.txt", "plain\n")
	ExpectFile(t, workspace, "genrules/outputs/empty", "")
	ExpectFile(t, workspace, "genrules/shouted.txt", "PLAIN\nPLAIN\n")

	got := fileDigest(t, filepath.Join(workspace, "bazel-bin/genrules/big.txt"))
	if want := bigDigest(t); got != want {
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

// bigDigest is the digest that the output of //genrules:big must have. A loop over its lines takes
// many seconds with the race detector.
func bigDigest(t *testing.T) string {
	t.Helper()
	lines := exec.Command("seq", strconv.Itoa(bigFirst), strconv.Itoa(bigFirst+bigSize/10-1))
	h := sha256.New()
	lines.Stdout = h
	if err := lines.Run(); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}
