package forerunner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module           = "github.com/forerunner-build/forerunner"
	maxFileLines     = 800
	maxFunctionLines = 100
	maxParameters    = 5
)

// floors says where each package lives; a package imports only from floors below its own. A name
// that ends in "/..." stands for all packages below. The longest match counts.
var floors = map[string]int{
	"proto/...":              0,
	"bounded":                0,
	"crew":                   0,
	"mountinfo":              0,
	"logline":                0,
	"paths":                  0,
	"eintr":                  0,
	"freeport":               0, // for tests
	"pause":                  0,
	"printable":              0,
	"refusal":                0,
	"secrets":                0,
	"settings":               0,
	"cas/digest":             0,
	"cas/disk/folder":        0,
	"cas/disk/tamper":        0,
	"cas/instance":           0,
	"cas/span":               0,
	"intake/inprocess":       0,
	"vfs/budget":             0,
	"vfs/fusedev":            0,
	"scheduler/core/alike":   0,
	"scheduler/core/fair":    0,
	"scheduler/core/fifo":    0,
	"scheduler/core/listing": 0,
	"scheduler/core/roster":  0,
	"bounded/least":          0,
	"scheduler/core/quota":   0,
	"scheduler/core/spill":   0,
	"scheduler/core/timer":   0,
	"scheduler/core/trust":   0,

	"auth/certtest":      1, // for tests
	"settings/reference": 1, // for tests
	"auth/reload":        1,
	"cas":                1, // contracts
	"cas/disk/aside":     1,
	"cas/holders":        1,
	"cas/scrub":          1,
	"cas/tree":           1,
	"cas/wire":           1,
	"proto/admin":        1, // shows messages of others
	"cgroup":             1,
	"intake":             1,
	"prefetch/follow":    2,
	"prefetch/mention":   0,
	"prefetch/score":     1,
	"records/kind":       1,
	"records/record":     1,
	"history":            1,
	"hugepages":          1,
	"sandbox":            1,
	"vfs/erofs":          1,
	"vfs/folder":         1,
	"vfs/mounts":         1,
	"vfs/vouch":          1,
	"records/redistest":  1, // for tests
	"rpctest":            1, // for tests

	"auth":                2,
	"auth/certs":          2,
	"cas/client":          2,
	"cas/disk":            2,
	"cas/fetch":           2,
	"cas/server":          2,
	"vfs/copied":          2,
	"vfs/frame":           2,
	"vfs/fuse":            2,
	"vfs/image":           2,
	"vfs/link":            2,
	"vfs/overlay":         2,
	"vfs/vfstest":         2, // for tests
	"prefetch":            3,
	"records":             2,
	"records/sharedruns":  2,
	"records/lookback":    3,
	"history/relay":       2,
	"runner":              2,
	"scheduler/sizeclass": 2,
	"worker/fault":        2,
	"worker/census":       2,
	"worker/live":         2,
	"worker/machine":      1,
	"worker/reuse":        4,
	"web/text":            2,
	"web/series":          2,
	"web/answers":         3,
	"web/plots":           4,
	"web/printed":         3,
	"web/timeline":        3, // writes workers as text
	"web/charts":          3,
	"web/stored":          2,
	"web/comparison":      4,
	"web/facts":           4,

	"auth/login":           3, // its sessions are those of auth
	"auth/login/logintest": 1, // for tests

	"cas/peer":              3, // has a client and is a server
	"vfs":                   3, // joins the layers
	"cas/castest":           3, // for tests
	"cas/server/servertest": 3, // for tests

	"worker/ahead":            4,
	"worker/health":           4,
	"worker/health/diskquota": 2,
	"worker/historical":       4,
	"worker/inputs":           4,
	"worker/outputs":          4,
	"worker/pipeline":         4,
	"worker/policy":           4,
	"worker/uncharged":        3,
	"worker/scratch":          2,
	"worker/usage":            4,
	"worker/vouching":         4,
	"worker/watch":            4,
	"runner/launchertest":     4, // for tests

	"worker": 5,

	"scheduler/core/drain":      1,
	"scheduler/core/request":    1,
	"scheduler/core/sweep":      1,
	"scheduler/core/event":      2,
	"scheduler/core/levels":     2,
	"scheduler/core/orphan":     2,
	"scheduler/core/offer":      2,
	"scheduler/core/preemption": 1,
	"scheduler/core/tuning":     3,
	"scheduler/core/view":       2,
	"scheduler/core":            4,
	"scheduler/connection":      3,
	"scheduler/journal":         5,
	"scheduler/engine":          6,
	"scheduler/finished":        6,
	"scheduler/pastruns":        4,
	"scheduler/operation":       5,
	"scheduler/learning":        7,
	"scheduler/live":            7,
	"scheduler/operators":       7,
	"scheduler":                 8,

	// What only programs use.
	"client": 5,
	"web":    5,

	"buildevents":     3,
	"farm/console":    3,
	"farm/flags":      4,
	"farm/dial":       4,
	"farm/completed":  4,
	"farm/config":     4,
	"farm/datafolder": 1,
	"farm/durable":    3,
	"farm/ids":        0,
	"farm/probe":      4,
	"farm/scrub":      6,
	"farm/storage":    7,
	"farm/state":      5,
	"farm/serve":      5,
	"farm":            9, // puts parts together

	// For developers.
	"bench/report":          1,
	"bench/benchtest":       1,
	"bench/program":         1,
	"bench/sizes/command":   1,
	"bench/sizes/peer":      1,
	"bench/sizes/recorder":  10,
	"bench/sizes/recording": 1,
	"bench/sizes/streams":   10,
	"bench/testbed":         10,
	"bench/load":            10,
	"bench/floor":           10,
	"bench/pages":           12,
	"bench/...":             11,
	"test/programs":         10, // for tests of whole farms, which are above it and hold nothing else
	"test/bazel":            11,

	"cmd/bench":                13,
	"cmd/forerunner":           12,
	"cmd/forerunner-scheduler": 12,
	"cmd/forerunner-worker":    12,
}

// tools are programs for developers, outside of the floors: they import nothing of ours and
// nothing imports them. The root is one of them.
var tools = []string{"", "proto/generate"}

// forbidden holds what the floors allow and the design does not: the scheduler never touches
// input roots or processes, and asks storage through an interface of its own; pages know the
// scheduler and the storage by their protocols alone. Names that both sides write are in
// proto/names. What a package may not import, those in its folder may not either.
var forbidden = map[string][]string{
	"scheduler": {
		"vfs", "prefetch", "runner", "sandbox", "cgroup", "cas", "cas/disk", "cas/client", "cas/server", "cas/fetch", "cas/peer",
	},
	"web": {"scheduler", "cas", "cas/disk", "cas/client", "cas/server", "cas/fetch", "cas/peer"},
}

// A goPackage is what "go list" tells about a package; names are relative to the module.
type goPackage struct {
	Dir, ImportPath, Name string
	GoFiles, Imports      []string
}

func TestFloors(t *testing.T) {
	for _, p := range packages(t) {
		for _, fault := range floorFaults(p.ImportPath, p.Imports) {
			t.Error(fault)
		}
	}
}

func TestFloorFaults(t *testing.T) {
	for _, test := range []struct {
		name, pkg string
		imports   []string
		want      string // part of the only fault, or empty
	}{
		{"down", "worker", []string{"cas", "cas/digest", "vfs", "proto/fsac"}, ""},
		{"down by four", "cmd/forerunner", []string{"farm", "cgroup"}, ""},
		{"sideways", "records", []string{"cas/disk"}, "records (floor 2) imports cas/disk (floor 2)"},
		{"between the halves", "worker", []string{"scheduler"}, "worker (floor 5) imports scheduler (floor 8)"},
		{"up", "cas", []string{"worker"}, "cas (floor 1) imports worker (floor 5)"},
		{"allowed by floor only", "scheduler", []string{"runner"}, "scheduler may not import runner"},
		{"allowed by floor only, in a folder", "scheduler/operators", []string{"runner"}, "scheduler/operators may not import runner"},
		{"pages of a storage", "web", []string{"cas/peer"}, "web may not import cas/peer"},
		{"unknown package", "util", nil, "util is on no floor"},
		{"unknown import", "worker", []string{"common"}, "common is on no floor"},
		{"import of a tool", "cas", []string{"proto/generate"}, "cas imports proto/generate, a tool"},
		{"tool with imports", "proto/generate", []string{"cas"}, "proto/generate is a tool and imports cas"},
		{"a new schema", "proto/somethingnew", nil, ""},
		{"a name that starts alike", "proton", nil, "proton is on no floor"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := floorFaults(test.pkg, test.imports)
			if test.want == "" && len(got) == 0 {
				return
			}
			if test.want == "" || len(got) != 1 || !strings.Contains(got[0], test.want) {
				t.Errorf("faults %q, want one with %q", got, test.want)
			}
		})
	}
}

// floorFaults says what is wrong with where pkg lives and what of ours it imports.
func floorFaults(pkg string, imports []string) (faults []string) {
	if slices.Contains(tools, pkg) {
		for _, i := range imports {
			faults = append(faults, fmt.Sprintf("%s is a tool and imports %s", pkg, i))
		}
		return faults
	}
	floor, ok := floorOf(pkg)
	if !ok {
		return []string{unknown(pkg)}
	}
	first, _, _ := strings.Cut(pkg, "/")
	for _, i := range imports {
		below, ok := floorOf(i)
		switch {
		case slices.Contains(tools, i):
			faults = append(faults, fmt.Sprintf("%s imports %s, a tool", pkg, i))
		case !ok:
			faults = append(faults, unknown(i))
		case below >= floor:
			faults = append(faults, fmt.Sprintf("%s (floor %d) imports %s (floor %d), which is not below it",
				pkg, floor, i, below))
		case slices.Contains(forbidden[first], i):
			faults = append(faults, fmt.Sprintf("%s may not import %s", pkg, i))
		}
	}
	return faults
}

func floorOf(pkg string) (int, bool) {
	if floor, ok := floors[pkg]; ok {
		return floor, true
	}
	for dir := path.Dir(pkg); dir != "."; dir = path.Dir(dir) {
		if floor, ok := floors[dir+"/..."]; ok {
			return floor, true
		}
	}
	return 0, false
}

func unknown(pkg string) string {
	return pkg + " is on no floor: add it to the table in rules_test.go"
}

// TestPackageDocs wants a doc.go that says what the package is for; in a program main.go may do it.
// Generated packages are described where their schema is.
func TestPackageDocs(t *testing.T) {
	for _, p := range packages(t) {
		if !slices.ContainsFunc(p.GoFiles, func(name string) bool { return !isGenerated(name) }) {
			expectSchemaComment(t, p)
			continue
		}
		file, start := "doc.go", "Package "+p.Name+" "
		if p.Name == "main" {
			start = "Command " + path.Base(p.ImportPath) + " "
			if !slices.Contains(p.GoFiles, file) {
				file = "main.go"
			}
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil,
			parser.ParseComments|parser.PackageClauseOnly)
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s has no %s", p.ImportPath, file)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(parsed.Doc.Text(), start) {
			t.Errorf("%s: the package comment in %s does not begin with %q", p.ImportPath, file, start)
		}
	}
}

// expectSchemaComment fails the test unless each schema of a generated package has a comment
// right before its package line.
func expectSchemaComment(t *testing.T, p goPackage) {
	t.Helper()
	schemas, err := filepath.Glob(filepath.Join(p.Dir, "*.proto"))
	if err != nil || len(schemas) == 0 {
		t.Errorf("%s: generated code without a schema beside it (%v)", p.ImportPath, err)
	}
	for _, schema := range schemas {
		text, err := os.ReadFile(schema)
		if err != nil {
			t.Fatal(err)
		}
		before, _, _ := strings.Cut(string(text), "\npackage ")
		if last := before[strings.LastIndex(before, "\n")+1:]; !strings.HasPrefix(last, "// ") {
			t.Errorf("%s does not say what it is for: want a comment above its package line", schema)
		}
	}
}

// TestSizes bounds files and functions; generated code is left out.
func TestSizes(t *testing.T) {
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".go" || isGenerated(name) {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		faults, err := sizeFaults(name, source)
		for _, fault := range faults {
			t.Error(fault)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSizeFaults(t *testing.T) {
	function := func(lines int) string {
		return "func f() {\n" + strings.Repeat("\n", lines-2) + "}\n"
	}
	table := "func f() {\n_ = []int{\n" + strings.Repeat("1,\n", maxFunctionLines) + "}\n}\n"
	for _, test := range []struct {
		name, file, source, want string
	}{
		{"largest function", "x.go", function(maxFunctionLines), ""},
		{"long function", "x.go", function(maxFunctionLines + 1), "x.go:2: f has 101 lines"},
		{"long test", "x_test.go", function(maxFunctionLines + 1), "x_test.go:2: f has 101 lines"},
		{"long table of a test", "x_test.go", table, ""},
		{"long table of another function", "x.go", table, "x.go:2: f has 104 lines"},
		{"long file", "x.go", strings.Repeat("\n", maxFileLines), "x.go: 801 lines"},
		{"five parameters", "x.go", "func f(a, b, c int, d, _ string) {}\n", ""},
		{"six parameters", "x.go", "func f(a, b, c int, d, e string, _ bool) {}\n", "x.go:2: f has 6 parameters"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := sizeFaults(test.file, []byte("package x\n"+test.source))
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" && len(got) == 0 {
				return
			}
			if test.want == "" || len(got) != 1 || !strings.Contains(got[0], test.want) {
				t.Errorf("faults %q, want one with %q", got, test.want)
			}
		})
	}
}

// sizeFaults says what is too long in a file. The tables of a test do not count as lines of its
// function, and helpers of tests may take more parameters.
func sizeFaults(name string, source []byte) (faults []string, err error) {
	if n := bytes.Count(source, []byte("\n")); n > maxFileLines {
		faults = append(faults, fmt.Sprintf("%s: %d lines, at most %d", name, n, maxFileLines))
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	isTest := strings.HasSuffix(name, "_test.go")
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		start := files.Position(f.Pos())
		n := lines(files, f)
		if isTest {
			n -= tableLines(files, f)
		}
		if n > maxFunctionLines {
			faults = append(faults, fmt.Sprintf("%s:%d: %s has %d lines, at most %d",
				name, start.Line, f.Name.Name, n, maxFunctionLines))
		}
		if n := f.Type.Params.NumFields(); n > maxParameters && !isTest {
			faults = append(faults, fmt.Sprintf("%s:%d: %s has %d parameters, at most %d",
				name, start.Line, f.Name.Name, n, maxParameters))
		}
	}
	return faults, nil
}

// lines returns how many lines a node spans.
func lines(files *token.FileSet, n ast.Node) int {
	return files.Position(n.End()).Line - files.Position(n.Pos()).Line + 1
}

// tableLines returns how many lines of f are inside of composite literals.
func tableLines(files *token.FileSet, f *ast.FuncDecl) (sum int) {
	ast.Inspect(f, func(n ast.Node) bool {
		table, ok := n.(*ast.CompositeLit)
		if ok {
			sum += lines(files, table) - 1
		}
		return !ok
	})
	return sum
}

func isGenerated(name string) bool { return strings.HasSuffix(name, ".pb.go") }

// packages lists the packages of the module that hold more than tests. Import paths are made
// relative to it, imports of others are left out; what only tests import does not count.
func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=Dir,ImportPath,Name,GoFiles,Imports", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if len(p.GoFiles) == 0 {
			continue
		}
		p.ImportPath = relative(p.ImportPath)
		p.Imports = slices.DeleteFunc(p.Imports, func(i string) bool {
			return i != module && !strings.HasPrefix(i, module+"/")
		})
		for i := range p.Imports {
			p.Imports[i] = relative(p.Imports[i])
		}
		list = append(list, p)
	}
	if len(list) < 10 {
		t.Fatalf("go list found %d packages, want the whole module", len(list))
	}
	return list
}

func relative(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}
