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
	"strings"
	"testing"
)

// TestArchitecture checks that each file, folder, package and symbol that docs/ARCHITECTURE.md
// names exists. Symbols are named with their package, as in core.State.Step; where several packages
// have that name, one of them has to have it.
func TestArchitecture(t *testing.T) {
	page, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(page), "\n## Dependencies\n")
	symbols, folders := declared(t)
	symbol, checked := regexp.MustCompile(`^[a-z]\w*(\.[A-Za-z]\w*)+$`), 0
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		name := m[1]
		first, _, path := strings.Cut(name, "/")
		pkg, _, qualified := strings.Cut(name, ".")
		switch {
		case path && slices.Contains(folders, first), filepath.Ext(name) == ".go":
			if _, err := os.Stat(strings.TrimSuffix(name, "/...")); err != nil {
				t.Errorf("docs/ARCHITECTURE.md names a file that is gone: %v", err)
			}
		case qualified && symbol.MatchString(name) && symbols[pkg] != nil:
			if !symbols[pkg][name] {
				t.Errorf("docs/ARCHITECTURE.md names %s, which no package %s has", name, pkg)
			}
		default:
			continue
		}
		checked++
	}
	if checked < 100 {
		t.Errorf("docs/ARCHITECTURE.md names only %d files and symbols", checked)
	}
}

// declared returns what the packages of the module declare, by the package's name, and the folders at the top.
func declared(t *testing.T) (symbols map[string]map[string]bool, folders []string) {
	t.Helper()
	symbols = map[string]map[string]bool{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || name == "build" || strings.HasPrefix(d.Name(), ".") && name != "."):
			return filepath.SkipDir
		case d.IsDir():
			if filepath.Dir(name) == "." && name != "." {
				folders = append(folders, name)
			}
			return nil
		case filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if symbols[file.Name.Name] == nil {
			symbols[file.Name.Name] = map[string]bool{}
		}
		for _, d := range file.Decls {
			for _, s := range symbolsOf(d) {
				symbols[file.Name.Name][file.Name.Name+"."+s] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return symbols, folders
}

// symbolsOf returns the names that a declaration makes: Type.Method for methods, Type.Field for fields.
func symbolsOf(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		return []string{receiver(d.Recv.List[0].Type) + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names = append(names, name.Name)
				}
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
				names = append(names, membersOf(spec)...)
			}
		}
	}
	return names
}

func membersOf(spec *ast.TypeSpec) (names []string) {
	var members *ast.FieldList
	switch kind := spec.Type.(type) {
	case *ast.StructType:
		members = kind.Fields
	case *ast.InterfaceType:
		members = kind.Methods
	default:
		return nil
	}
	for _, member := range members.List {
		for _, name := range member.Names {
			names = append(names, spec.Name.Name+"."+name.Name)
		}
	}
	return names
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
