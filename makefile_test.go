package forerunner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// testedBy runs "make test" with a go command that lists so and an analyser that says what staticcheck
// would, and returns what it is to test.
func testedBy(t *testing.T, list, staticcheck string) (tested, out string, err error) {
	t.Helper()
	dir := t.TempDir()
	command, log := filepath.Join(dir, "go"), filepath.Join(dir, "log")
	script := "#!/bin/sh\ncase $1 in\nlist) " + list + " ;;\ntest) echo \"$@\" >> " + log + " ;;\nesac\n"
	if err := os.WriteFile(command, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "-o", "compile", "-o", "unformatted", "-o", "test-needs",
		"GO="+command, "STATICCHECK="+staticcheck, "test")
	cmd.Env = append(os.Environ(), "MAKEFLAGS=") // without the flags of a make that runs this test
	said, err := cmd.CombinedOutput()
	t.Logf("%s", said)
	b, _ := os.ReadFile(log) // absent: nothing was tested
	return string(b), string(said), err
}

// TestAllIsTested: "make test" fails where packages cannot be listed, instead of testing fewer, and where
// staticcheck, which runs beside the tests, finds something.
func TestAllIsTested(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	const list = "printf '%s\\n' x/a x/test/sizes x/b x/scheduler/core x/prefetch"
	tested, _, err := testedBy(t, list, "true")
	runs := strings.Split(strings.TrimSuffix(tested, "\n"), "\n")
	if err != nil || len(runs) != 3 || !strings.HasSuffix(runs[0], " ./scheduler/core ./vfs/erofs ./bench/sizes ./prefetch") ||
		!strings.HasSuffix(runs[1], " x/a x/b x/prefetch") || !strings.HasSuffix(runs[2], " ./test/sizes") {
		t.Errorf("%v, tested: %q", err, tested)
	}
	if tested, _, err := testedBy(t, "echo x/a; exit 1", "true"); err == nil || tested != "" {
		t.Errorf("packages cannot be listed: %v, tested: %q", err, tested)
	}
	if tested, out, err := testedBy(t, list, "ls /absent"); err == nil || !strings.Contains(out, "staticcheck:\nls: ") ||
		!strings.HasPrefix(tested, strings.Join(runs[:2], "\n")) {
		t.Errorf("staticcheck finds something: %v, tested: %q", err, tested)
	}
}

// TestTestsThatBeginFirst: the folders that the Makefile names exist.
func TestTestsThatBeginFirst(t *testing.T) {
	b, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nTEST_FIRST := ")
	list, _, _ := strings.Cut(strings.ReplaceAll(rest, "\\\n", " "), "\n")
	folders := strings.Fields(list)
	if len(folders) == 0 {
		t.Fatal("the Makefile names none")
	}
	for _, folder := range folders {
		if tests, err := filepath.Glob(filepath.Join(folder, "*_test.go")); err != nil || len(tests) == 0 {
			t.Errorf("%s has no tests", folder)
		}
	}
}
