package forerunner

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// makers has the functions that make a server without limits, by the import that has them.
var makers = map[string][]string{
	"google.golang.org/grpc": {"NewServer"},
	"net/http":               {"Server", "Serve", "ServeTLS", "ListenAndServe", "ListenAndServeTLS"},
}

// TestServersAreBounded requires all servers of the programs to come from package intake, which
// limits them. Tests and benchmarks make their own.
func TestServersAreBounded(t *testing.T) {
	for _, p := range packages(t) {
		if p.ImportPath == "intake" || p.ImportPath == "cas/server/servertest" || strings.HasPrefix(p.ImportPath, "bench/") {
			continue
		}
		for _, name := range p.GoFiles {
			faults, err := serverFaults(filepath.Join(p.Dir, name), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range faults {
				t.Error(fault)
			}
		}
	}
}

func TestServerFaults(t *testing.T) {
	for source, want := range map[string]int{
		"import \"google.golang.org/grpc\"\nvar s = grpc.NewServer()":              1,
		"import other \"google.golang.org/grpc\"\nvar s = other.NewServer()":       1,
		"import \"net/http\"\nvar s = &http.Server{}":                              1,
		"import \"net/http\"\nvar s http.Server":                                   1,
		"import \"net/http\"\nvar _ = http.ListenAndServe":                         1,
		"import \"net/http\"\nvar s, c = http.NewServeMux(), http.ErrServerClosed": 0,
		"import \"google.golang.org/grpc\"\nvar s *grpc.Server":                    0,
		"import grpc \"net/url\"\nvar s = grpc.NewServer()":                        0,
	} {
		got, err := serverFaults("x.go", []byte("package x\n"+source+"\n"))
		if err != nil || len(got) != want {
			t.Errorf("%s: %q, %v; want %d", source, got, err, want)
		}
	}
}

// serverFaults says where a file makes a server itself.
func serverFaults(name string, source any) (faults []string, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	imports := map[string]string{}
	for _, i := range parsed.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		as := path[strings.LastIndex(path, "/")+1:]
		if i.Name != nil {
			as = i.Name.Name
		}
		imports[as] = path
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := s.X.(*ast.Ident)
		if ok && slices.Contains(makers[imports[of.Name]], s.Sel.Name) {
			faults = append(faults, fmt.Sprintf("%s: %s.%s has no bounds: use package intake", files.Position(n.Pos()), of.Name, s.Sel.Name))
		}
		return true
	})
	return faults, nil
}
