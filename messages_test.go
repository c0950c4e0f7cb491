package forerunner

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMessages holds docs/TROUBLESHOOTING.md to the code: it has each warning and error that the
// programs log, and each status that callers are told, and nothing else in their place.
func TestMessages(t *testing.T) {
	page, err := os.ReadFile("docs/TROUBLESHOOTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, found := strings.Cut(string(page), "\n## What scheduler and worker log\n")
	if !found {
		t.Fatal("the page has no tables")
	}
	var explained []string
	for line := range strings.Lines(tables) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			explained = append(explained, m[1])
		}
	}
	said := messages(t)
	if len(said) < 100 {
		t.Fatalf("the code has %d messages only: %q", len(said), said)
	}
	for m, where := range said {
		if !slices.Contains(explained, m) {
			t.Errorf("%s: %q is not in docs/TROUBLESHOOTING.md", where, m)
		}
	}
	for _, m := range explained {
		if said[m] == "" {
			t.Errorf("docs/TROUBLESHOOTING.md explains %q, which nothing says", m)
		}
	}
}

// messages finds what is logged as a warning or an error, and what callers are told by status.Error
// and status.Errorf, with where it is found. What is filled in is "…". Pages of the web, programs
// for developers and what "forerunner" prints explain themselves.
func messages(t *testing.T) map[string]string {
	t.Helper()
	said := map[string]string{}
	elsewhere := []string{"cas/castest", "bench", "client", "cmd/bench", "cmd/forerunner", "proto", "test"}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(elsewhere, name) || d.Name() == "testdata" || strings.HasPrefix(name, ".") && name != "."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if m := messageOf(call, strings.HasPrefix(name, "web/")); m != "" {
					said[m] = name
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return said
}

var verb = regexp.MustCompile(`%[.0-9+#]*[a-zA-Z]`)

// messageOf returns what a call logs or tells; empty if it does neither.
func messageOf(call *ast.CallExpr, page bool) string {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	at := 0
	if on, ok := f.X.(*ast.Ident); ok && on.Name == "status" && !page {
		at = 1 // behind the code
	} else if f.Sel.Name == "Errorf" {
		return ""
	}
	if f.Sel.Name == "Print" && len(call.Args) == 4 {
		at = 2 // logline.Form's
	} else if !slices.Contains([]string{"Warn", "Error", "Errorf"}, f.Sel.Name) || len(call.Args) <= at {
		return ""
	}
	return verb.ReplaceAllString(textOf(call.Args[at]), "…")
}

// textOf returns a text of literals, with "…" for other parts; empty if it has no literal.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		first, second := textOf(e.X), textOf(e.Y)
		if first != "" && second == "" {
			second = "…"
		}
		return first + second
	}
	return ""
}
