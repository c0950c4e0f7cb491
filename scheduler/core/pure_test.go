package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pure are the packages that the core may import: none has a clock, a lock, a socket, a file, a log
// or randomness that it could reach by them. Of time it may use no more than durations and moments.
// Those below the core itself it may import, too: they are held to the same.
var pure = []string{
	"bytes", "cmp", "container/heap", "container/list", "crypto/sha256",
	"encoding/hex", "encoding/json", "errors", "fmt", "iter",
	"maps", "math", "math/bits", "slices", "sort", "strconv", "strings", "time",
	"github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2",
	"google.golang.org/genproto/googleapis/rpc/status",
	"google.golang.org/grpc/codes", "google.golang.org/protobuf/proto", "google.golang.org/protobuf/types/known/anypb",
	"github.com/forerunner-build/forerunner/cas/digest", "github.com/forerunner-build/forerunner/cas/instance",
	"github.com/forerunner-build/forerunner/proto/names", "github.com/forerunner-build/forerunner/proto/pattern",
	"github.com/forerunner-build/forerunner/proto/plural",
	"github.com/forerunner-build/forerunner/bounded/least",
}

// below is what packages below the core begin with.
const below = "github.com/forerunner-build/forerunner/scheduler/core/"

// clocks are what of package time looks at a clock.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

// TestCoreIsPure sees that nothing the core decides can depend on anything but its events.
func TestCoreIsPure(t *testing.T) {
	for _, pattern := range []string{"*.go", "*/*.go", "../../bounded/least/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no files are %s: %v", pattern, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range impurities(file) {
				t.Errorf("%s: %s", files.Position(fault.at), fault.text)
			}
		}
	}
}

type impurity struct {
	at   token.Pos
	text string
}

func impurities(file *ast.File) (faults []impurity) {
	for _, i := range file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		if !slices.Contains(pure, path) && !strings.HasPrefix(path, below) {
			faults = append(faults, impurity{i.Pos(), "the core may not import " + path})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt, *ast.ChanType:
			faults = append(faults, impurity{n.Pos(), "the core has no goroutines"})
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clocks, n.Sel.Name) {
				faults = append(faults, impurity{n.Pos(), "the core has no clock: time." + n.Sel.Name})
			}
		}
		return true
	})
	return faults
}

// TestImpurities sees that the test above can fail.
func TestImpurities(t *testing.T) {
	for source, want := range map[string]string{
		`import "sync"`:                                         "may not import sync",
		`import "go.uber.org/zap"`:                              "may not import go.uber.org/zap",
		`import "time"; var start = time.Now()`:                 "no clock: time.Now",
		`func f() { go f() }`:                                   "no goroutines",
		`import "time"; func f(t time.Time) { t.After(t) }`:     "",
		`import "fmt"; func f() string { return fmt.Sprint() }`: "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package x; "+source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		faults := impurities(file)
		if (len(faults) == 0) != (want == "") || want != "" && !strings.Contains(faults[0].text, want) {
			t.Errorf("%s: %v, want %q", source, faults, want)
		}
	}
}
