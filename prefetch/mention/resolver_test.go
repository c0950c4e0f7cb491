package mention

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// A tree is a Tree by path.
type tree map[string]PathState

// treeOf returns the tree with these files. A path that ends in "/" is a folder that is not known.
func treeOf(paths ...string) tree {
	t := tree{".": Folder}
	for _, p := range paths {
		folder, unknown := strings.CutSuffix(p, "/")
		t[folder] = File
		if unknown {
			t[folder] = Folder
			t[folder+"/"] = Unknown
		}
		for up := path.Dir(folder); up != "."; up = path.Dir(up) {
			t[up] = Folder
		}
	}
	return t
}

func (t tree) Look(p string) (at string, s PathState) {
	for up := path.Dir(p); up != "."; up = path.Dir(up) {
		if t[up+"/"] == Unknown {
			if _, ok := t[up+"/"]; ok {
				return "", Unknown
			}
		}
	}
	return p, t[p]
}

func (tree) Skip() {}

func (t tree) Starting(folder, prefix string) (name string) {
	for p, s := range t {
		if base := path.Base(p); s != Absent && path.Dir(p) == folder && strings.HasPrefix(base, prefix) && (name == "" || base < name) {
			name = base
		}
	}
	return name
}

func (t tree) Holding(name string) (folders []string) {
	for p, s := range t {
		if path.Base(p) == name && s != Absent && !strings.HasSuffix(p, "/") {
			folders = append(folders, path.Dir(p))
		}
	}
	slices.Sort(folders)
	return folders
}

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		about, paths, args, from string
		mention                  Mention
		want                     string // "?" is not known
	}{
		{"beside", "a/b.cc a/c.h c.h", "", "a/b.cc", Mention{Kind: Quoted, Name: "c.h"}, "a/c.h"},
		{"above", "a/b.cc c.h", "", "a/b.cc", Mention{Kind: Quoted, Name: "../c.h"}, "c.h"},
		{"outside", "a.cc", "", "a.cc", Mention{Kind: Quoted, Name: "../c.h"}, ""},
		{"in a folder of headers", "a.cc i/c.h j/c.h", "-Ij -Ii", "a.cc", Mention{Kind: Quoted, Name: "c.h"}, "j/c.h"},
		{"brackets", "a.cc c.h j/c.h", "-isystem j", "a.cc", Mention{Kind: Bracketed, Name: "c.h"}, "j/c.h"},
		{"next", "i/c.h j/c.h", "-Ii -Ij", "i/c.h", Mention{Kind: Bracketed, Name: "c.h"}, "j/c.h"},
		{"anywhere", "x/a.cc y/z/b/c.h", "", "x/a.cc", Mention{Kind: Bracketed, Name: "b/c.h"}, "y/z/b/c.h"},
		{"the nearer one", "x/y/a.cc x/i/b/c.h j/b/c.h", "", "x/y/a.cc", Mention{Kind: Bracketed, Name: "b/c.h"}, "x/i/b/c.h"},
		{"nowhere", "a.cc b/d.h", "", "a.cc", Mention{Kind: Bracketed, Name: "b/c.h"}, ""},
		{"not yet known", "a.cc i/b/", "-Ii", "a.cc", Mention{Kind: Bracketed, Name: "b/c.h"}, "?"},
		{"a folder", "a.cc b/c", "", "a.cc", Mention{Kind: Quoted, Name: "b"}, ""},

		{"a module beside", "p/a.py p/b.py", "", "p/a.py", Mention{Kind: Module, Name: "b"}, "p/b.py"},
		{
			"a package", "a.py b/__init__.py b/c/__init__.py b/c/d.py", "", "a.py",
			Mention{Kind: Module, Name: "b/c/d"},
			"b/c/__init__.py b/__init__.py b/c/d.py",
		},
		{"from within a package", "l/b/__init__.py l/b/c.py l/d.py", "", "l/b/c.py", Mention{Kind: Module, Name: "d"}, "l/d.py"},
		{"a library", "a.py lib/os.py lib/re/__init__.py", "", "a.py", Mention{Kind: Module, Name: "re"}, "lib/re/__init__.py"},
		{"a name in a module", "a.py b.py", "", "a.py", Mention{Kind: Submodule, Name: "b/c"}, ""},
		{"a module of a package", "a.py b/__init__.py b/c.py", "", "a.py", Mention{Kind: Submodule, Name: "b/c"}, "b/__init__.py b/c.py"},
		{
			"a shared library", "l/a.py l/lib-dynload/_b.cpython-311-x86_64-linux-gnu.so l/lib-dynload/_bc.so", "", "l/a.py",
			Mention{Kind: Module, Name: "_b"},
			"l/lib-dynload/_b.cpython-311-x86_64-linux-gnu.so",
		},
		{
			"one of a package", "l/b/__init__.py l/b/a.py l/b/_c.abi3.so", "", "l/b/a.py",
			Mention{Kind: Module, Name: "b/_c"},
			"l/b/__init__.py l/b/_c.abi3.so",
		},
		{"one beside", "b/__init__.py b/a.py b/_c.so", "", "b/a.py", Mention{Kind: Relative, Name: "_c"}, "b/_c.so"},
		{"a module rather than that", "a.py b.py b.so", "", "a.py", Mention{Kind: Module, Name: "b"}, "b.py"},
		{"no shared library", "a.py _b.cpython-311.txt", "", "a.py", Mention{Kind: Module, Name: "_b"}, ""},
		{"relative", "p/__init__.py p/a.py p/b.py", "", "p/a.py", Mention{Kind: Relative, Name: "b"}, "p/b.py"},
		{"the own package", "p/__init__.py p/a.py", "", "p/a.py", Mention{Kind: Relative, Name: "."}, "p/__init__.py"},
		{"the package above", "p/__init__.py p/q/a.py", "", "p/q/a.py", Mention{Kind: Relative, Name: "../."}, "p/__init__.py"},

		{"a script", "a.js b.js", "", "a.js", Mention{Kind: Script, Name: "./b"}, "b.js"},
		{"a script with its extension", "l/a.js l/b.js l/b.js.js", "", "l/a.js", Mention{Kind: Script, Name: "./b.js"}, "l/b.js"},
		{"an index", "l/a.js l/b/index.js", "", "l/a.js", Mention{Kind: Script, Name: "./b"}, "l/b/index.js"},
		{"the own index", "l/a.js l/index.js", "", "l/a.js", Mention{Kind: Script, Name: "."}, "l/index.js"},
		{"the index of the root", "a.js index.js", "", "a.js", Mention{Kind: Script, Name: "."}, "index.js"},
		{
			"a package of npm", "l/a.js node_modules/b/package.json node_modules/b/index.js", "", "l/a.js",
			Mention{Kind: Package, Name: "b"},
			"node_modules/b/package.json node_modules/b/index.js",
		},
		{
			"the nearest one", "l/m/a.js l/node_modules/b/index.js node_modules/b/index.js", "", "l/m/a.js",
			Mention{Kind: Package, Name: "b"},
			"l/node_modules/b/index.js",
		},
		{
			"a file of one", "a.js node_modules/@b/c/package.json node_modules/@b/c/d/e.js", "", "a.js",
			Mention{Kind: Package, Name: "@b/c/d/e"},
			"node_modules/@b/c/package.json node_modules/@b/c/d/e.js",
		},
		{"a builtin", "a.js node_modules/b/index.js", "", "a.js", Mention{Kind: Package, Name: "fs"}, ""},
		{"a package that is not known", "a.js node_modules/", "", "a.js", Mention{Kind: Package, Name: "b"}, "?"},

		{"a word", "a/b.sh", "", "", Mention{Kind: Word, Name: "a/b.sh"}, "a/b.sh"},
		{"a word that is a folder", "a/b.sh", "", "", Mention{Kind: Word, Name: "a"}, ""},
	} {
		r := NewResolver(treeOf(strings.Fields(c.paths)...))
		for _, m := range Words(strings.Fields(c.args)) {
			r.Resolve("", m, true)
		}
		for range 2 { // the second answer may be remembered
			files, known := r.Resolve(c.from, c.mention, true)
			got := strings.Join(files, " ")
			if !known {
				got = "?"
			}
			if got != c.want {
				t.Errorf("%s: %q, want %q", c.about, got, c.want)
			}
		}
	}
}

// The command line counts from the working directory.
func TestResolveInWorkingDirectory(t *testing.T) {
	r := NewResolver(treeOf("w/a.cc", "w/i/b.h", "c.h"))
	r.WorkIn("w")
	for _, m := range Words(strings.Fields("-Ii a.cc -I..")) {
		r.Resolve("", m, true)
	}
	for want, m := range map[string]Mention{
		"w/a.cc": {Kind: Word, Name: "a.cc"}, "w/i/b.h": {Kind: Bracketed, Name: "b.h"}, "c.h": {Kind: Bracketed, Name: "c.h"},
	} {
		if files, _ := r.Resolve("w/a.cc", m, true); !slices.Equal(files, []string{want}) {
			t.Errorf("%v: %v", m, files)
		}
	}
}

// A folder of headers that is not known yet has its turn when it is.
func TestFoldersHaveTheirTurn(t *testing.T) {
	in := treeOf("a.cc", "i/j/", "k/c.h", "l/c.h")
	r := NewResolver(in)
	folders := Words(strings.Fields("-Ii/j/gone -Ii/j -Ik -Il"))
	resolve := func(settled bool, want string, wantKnown bool) {
		t.Helper()
		for _, m := range folders {
			r.Resolve("", m, settled)
		}
		files, known := r.Resolve("a.cc", Mention{Kind: Bracketed, Name: "c.h"}, settled)
		if !slices.Equal(files, []string{want}) || known != wantKnown {
			t.Errorf("%q, known %t", files, known)
		}
	}
	in["i/j"], in["i/"] = Absent, Unknown
	resolve(false, "k/c.h", false)
	delete(in, "i/")
	in["i/j"], in["i/j/c.h"] = Folder, File
	delete(in, "i/j/")
	in["i/j/"] = Unknown
	resolve(false, "k/c.h", false)
	delete(in, "i/j/")
	resolve(false, "i/j/c.h", true)
	if want := []string{"i/j", "k", "l"}; !slices.Equal(r.headers, want) || len(r.unknown) > 0 {
		t.Errorf("%q, want %q; %d are unknown", r.headers, want, len(r.unknown))
	}
}

// Before the tree is settled, a part of Python's standard library is known by the name of its folder,
// and then others are.
func TestLibraryOfPython(t *testing.T) {
	r := NewResolver(treeOf("a.py", "x/encodings/b.py", "x/json.py", "l/python3.9/encodings/__init__.py", "l/python3.9/json.py"))
	want := func(name string, want ...string) {
		t.Helper()
		if files, known := r.Resolve("a.py", Mention{Kind: Module, Name: name}, false); !slices.Equal(files, want) || known != (want != nil) {
			t.Errorf("%s: %q, known %t; want %q", name, files, known, want)
		}
	}
	want("json")
	want("encodings", "l/python3.9/encodings/__init__.py")
	want("json", "l/python3.9/json.py")
	want("gone")
}

// A resolver that knows as many folders of modules as it may does not look for another one without
// end.
func TestLibraryBeyondFolders(t *testing.T) {
	paths := []string{"l/python3.9/encodings/__init__.py"}
	for i := range maxFolders {
		paths = append(paths, fmt.Sprintf("d%d/a.py", i), fmt.Sprintf("d%d/b%d.py", i, i))
	}
	r := NewResolver(treeOf(paths...))
	for i := range maxFolders {
		r.Resolve(fmt.Sprintf("d%d/a.py", i), Mention{Kind: Module, Name: fmt.Sprint("b", i)}, true)
	}
	if len(r.modules) != maxFolders {
		t.Fatalf("%d folders are known", len(r.modules))
	}
	if files, known := r.Resolve("d0/a.py", Mention{Kind: Module, Name: "encodings"}, false); files != nil || known {
		t.Errorf("%q, known %t", files, known)
	}
}

// Nothing is looked for everywhere before the tree is settled; then a name only once, and few names
// if none is there.
func TestSearchIsBounded(t *testing.T) {
	counted := &counting{tree: treeOf("a.cc", "i/j/b.h")}
	r := NewResolver(counted)
	if files, known := r.Resolve("a.cc", Mention{Kind: Bracketed, Name: "b.h"}, false); known || files != nil {
		t.Errorf("%v before the tree is settled", files)
	}
	if files, _ := r.Resolve("a.cc", Mention{Kind: Bracketed, Name: "b.h"}, true); !slices.Equal(files, []string{"i/j/b.h"}) {
		t.Errorf("%v when it is", files)
	}
	for i := range 1000 {
		for range 3 {
			r.Resolve("a.cc", Mention{Kind: Bracketed, Name: strings.Repeat("x", 1+i%400) + ".h"}, true)
		}
	}
	if counted.searches > freeSearch+searchWorth {
		t.Errorf("%d searches", counted.searches)
	}
}

type counting struct {
	tree
	searches int
}

func (c *counting) Holding(name string) []string {
	c.searches++
	return c.tree.Holding(name)
}
