package forerunner

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	cmd.Env = outsideMake()
	said, err := cmd.CombinedOutput()
	t.Logf("%s", said)
	b, _ := os.ReadFile(log) // absent: nothing was tested
	return string(b), string(said), err
}

// outsideMake returns an environment without the flags of a make that runs this test, and in which
// another one does not say where it is.
func outsideMake() []string { return append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=0") }

// TestAllIsTested: "make test" fails where packages cannot be listed, instead of testing fewer, and where
// staticcheck, which runs beside the tests, finds something.
func TestAllIsTested(t *testing.T) {
	needsMake(t)
	const list = "printf '%s\\n' x/a x/test/sizes x/b x/test/flood x/scheduler/core"
	tested, _, err := testedBy(t, list, "true")
	runs, alone := strings.Split(strings.TrimSuffix(tested, "\n"), "\n"), strings.Join(folders(t, "TEST_WITHOUT_RACE"), " ")
	alone = strings.Join(folders(t, "TEST_OF_PROGRAMS"), " ") + " " + alone
	if err != nil || len(runs) != 3 || !strings.HasSuffix(runs[0], " "+alone) || !strings.Contains(alone, "./scheduler/core ") ||
		!strings.HasSuffix(runs[1], " x/a x/b") || !strings.HasSuffix(runs[2], " ./test/sizes") {
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

// folders returns those that a list of the Makefile names.
func folders(t *testing.T, list string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "-f", "-", "list")
	cmd.Stdin = strings.NewReader("include Makefile\nlist:\n\t@echo $(" + list + ")\n")
	cmd.Env = outsideMake()
	out, err := cmd.Output()
	if err != nil || len(strings.Fields(string(out))) == 0 {
		t.Fatalf("%s of the Makefile: %q, %v", list, out, err)
	}
	return strings.Fields(string(out))
}

// TestListedTests: the folders that the Makefile names have tests, and what it tests without the race detector
// starts no goroutine, or only programs.
func TestListedTests(t *testing.T) {
	needsMake(t)
	without, programs := folders(t, "TEST_WITHOUT_RACE"), folders(t, "TEST_OF_PROGRAMS")
	for _, folder := range slices.Concat(folders(t, "TEST_FIRST"), programs, without) {
		if tests, err := filepath.Glob(filepath.Join(folder, "*_test.go")); err != nil || len(tests) == 0 {
			t.Errorf("%s has no tests", folder)
		}
	}
	for _, folder := range programs {
		if text, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.TestImports}} {{.XTestImports}}", folder).Output(); err != nil ||
			!strings.Contains(string(text), "/test/programs") {
			t.Errorf("%s starts no programs, and is tested without the race detector: %s, %v", folder, text, err)
		}
	}
	for _, folder := range without {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if at := starts(t, file); at != "" {
				t.Errorf("%s starts a goroutine, and is tested without the race detector", at)
			}
		}
	}
}

// starts returns where a file starts a goroutine; empty: nowhere.
func starts(t *testing.T, name string) (at string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			at = files.Position(n.Pos()).String()
		case *ast.SelectorExpr:
			if n.Sel.Name == "Go" || n.Sel.Name == "Parallel" {
				at = files.Position(n.Pos()).String()
			}
		}
		return at == ""
	})
	return at
}
