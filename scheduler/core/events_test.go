package core

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// codec is the file that writes events to recordings and reads them.
const codec = "../journal/codec.go"

// A typeSet has the names of types, as in "event.Submit" and "core.Kill".
type typeSet map[string]bool

// addExpr adds the type that an expression names.
func (s typeSet) addExpr(x ast.Expr) {
	switch x := x.(type) {
	case *ast.StarExpr:
		s.addExpr(x.X)
	case *ast.Ident:
		s["core."+x.Name] = true
	case *ast.SelectorExpr:
		if p, ok := x.X.(*ast.Ident); ok {
			s[p.Name+"."+x.Sel.Name] = true
		}
	}
}

// typesIn returns the types that find finds among the nodes of files.
func typesIn(t *testing.T, pattern string, find func(found typeSet, n ast.Node)) typeSet {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no files are %s: %v", pattern, err)
	}
	found := typeSet{}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			find(found, n)
			return true
		})
	}
	return found
}

// cases finds the types of type switches.
func cases(found typeSet, n ast.Node) {
	if c, ok := n.(*ast.CaseClause); ok {
		for _, x := range c.List {
			found.addExpr(x)
		}
	}
}

// literals finds the types of composite literals.
func literals(found typeSet, n ast.Node) {
	if l, ok := n.(*ast.CompositeLit); ok {
		found.addExpr(l.Type)
	}
}

// receivers finds the types that have a method.
func receivers(method string) func(typeSet, ast.Node) {
	return func(found typeSet, n ast.Node) {
		if f, ok := n.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == method {
			found.addExpr(f.Recv.List[0].Type)
		}
	}
}

// ordered finds the types that embed event.Order.
func ordered(found typeSet, n ast.Node) {
	spec, ok := n.(*ast.TypeSpec)
	if !ok {
		return
	}
	ast.Inspect(spec.Type, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && len(f.Names) == 0 {
			embedded := typeSet{}
			if embedded.addExpr(f.Type); embedded["event.Order"] {
				found.addExpr(spec.Name)
			}
		}
		return true
	})
}

// EventTypes returns the names of all types of events.
func EventTypes(t *testing.T) []string {
	all := typesIn(t, "[a-z]*.go", ordered)
	for name := range typesIn(t, "event/*.go", receivers("isEvent")) {
		if name != "core.Order" {
			all["event."+strings.TrimPrefix(name, "core.")] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// TestEveryEventIsInEveryList sees that whoever adds an event adds it to State.apply, to the journal
// and to the histories of these tests. That of the fuzzer is in TestReplay, and that of
// record.Event in the journal's own test.
func TestEveryEventIsInEveryList(t *testing.T) {
	orders := typeSet{}
	for _, e := range Orders() {
		orders[fmt.Sprintf("%T", e)] = true
	}
	all := EventTypes(t)
	if len(all) < len(orders) || len(all) < 15 {
		t.Errorf("these are not all events: %v", all)
	}
	for list, has := range map[string][]typeSet{
		"State.apply and the order.do of operators": {typesIn(t, "state.go", cases), typesIn(t, "[a-z]*.go", receivers("do"))},
		"encode of the journal and Orders":          {typesIn(t, codec, cases), orders},
		"decode of the journal and Orders":          {typesIn(t, codec, literals), orders},
		"history.parse and history.ask":             {typesIn(t, "script_test.go", literals)},
	} {
		for _, e := range all {
			if !slices.ContainsFunc(has, func(s typeSet) bool { return s[e] }) {
				t.Errorf("%s is not in %s", e, list)
			}
		}
	}
}
