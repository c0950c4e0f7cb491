package mention

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// show formats mentions as in the tables.
func show(ms []Mention) string {
	names := [...]string{"quoted", "bracketed", "module", "submodule", "relative", "script", "package", "word", "arguments", "include"}
	var words []string
	for _, m := range ms {
		word := names[m.Kind] + ":" + m.Name
		if m.Doubtful {
			word += "?"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestExtract(t *testing.T) {
	for _, c := range []struct{ about, name, content, want string }{
		{"headers", "a.cc", "#include <vector>\n  # include \"b/c.h\" // why\n#include_next <x.h>\n", "bracketed:vector quoted:b/c.h bracketed:x.h"},
		{"each once", "a.h", "#include <a>\n#include <a>\n", "bracketed:a"},
		{
			"macros that name headers", "a.hpp", "#define X <b/c.hpp>\n# define Y \"d.h\"\n#define Z \"text\"\n#define V 1\n#include X\n",
			"bracketed:b/c.hpp? quoted:d.h?",
		},
		{
			"headers that a condition asks for", "a.h",
			"#if __has_include(<a>) && defined(X) && !__has_include ( \"b.h\" )\n#elif defined __has_include\n# elif __has_include_next(<c.h>)\n#ifdef __has_include\n__has_include(<d>)\n",
			"bracketed:a quoted:b.h bracketed:c.h",
		},
		{"no directives", "a.c", "int a; #include <no>\ns = \"#include <no>\";\n#if 1\n#pragma once\n#", ""},
		{"unfinished", "a.c", "#include <a\n#include \"b\n#include\n#include <", ""},
		{"what no tree has", "a.c", "#include </usr/include/a.h>\n#include \"a\x00b\"\n#include \"C:\\a.h\"\n#include <>\n", ""},
		{"a header without extension", "vector", "// -*- C++ -*-\n#include <bits/a.h>\n", "bracketed:bits/a.h"},
		{"assembly", "a.S", "#include \"a.h\"\n\t.include \"b.inc\"\n.incbin \"c.bin\"\n .incline \"d\"", "quoted:a.h quoted:b.inc quoted:c.bin"},

		{"imports", "a.py", "import os, a.b.c as d # e\nimport f; x = 1\n", "module:os module:a/b/c module:f"},
		{
			"from", "a.py", "from a.b import c, d as e\nfrom a import (f,\n  g as h,\n)\nfrom i import *\n",
			"module:a/b submodule:a/b/c submodule:a/b/d module:a submodule:a/f submodule:a/g module:i",
		},
		{
			"relative", "a.py", "from . import a\nfrom .b import c\nfrom ..d.e import f\n",
			"relative:. relative:./a relative:b relative:b/c relative:../d/e relative:../d/e/f",
		},
		{"in functions", "a.py", "def f():\n    import a\n\tfrom b import c\n", "module:a? module:b? submodule:b/c?"},
		{
			"in conditions", "a.py",
			"try:\n    import a\nexcept ImportError:\n    import b\nif x:\n\n# why\n    import c\nelse:\n    import d\nif TYPE_CHECKING:\n    import e\n",
			"module:a module:b? module:c module:d module:e?",
		},
		{"at the end", "a.py", "x = 1\nif __name__ == '__main__':\n    import a\n", "module:a?"},
		{"prose", "a.py", "from the beginning we import nothing\nimporter = 1\nfrom\nimport\nfrom  import x\nimport a..b, 1+2\n", ""},
		{"a Python script", "tool", "#!/usr/bin/env python3\nimport a\n", "module:a"},

		{"require", "a.js", "const a = require('./a');\n  require(\"b/c\");\nx=require.resolve( '@d/e' )\n", "script:./a package:b/c? package:@d/e"},
		{
			"import", "a.mjs", "import a from './a.js';\nimport {\n b,\n} from \"b\";\nimport 'c';\nexport * from '../d';\nconst e = () => import('./e?x');\n",
			"script:./a.js package:b script:../d package:c script:./e",
		},
		{"in one line", "a.js", "!function(){var a=require(\"./a\"),b=require('b')}()", "script:./a package:b"},
		{"other words", "a.ts", "xrequire('a'); o.require('b'); $from 'c'; Array.from('d'); require(e); require('' ); require(`f`)", ""},
		{"builtin", "a.js", "require('node:fs'); require('fs'); import 'data:text'\n", "package:fs"},
		{"chunk", "a.js", "import(/* webpackChunkName: \"x\" */ './a')", "script:./a"},
		{
			"package", "x/package.json", `{"main": "./lib/a.js", "module": "b.mjs", "exports": {".": {"node": {"import": "./c.mjs"}, "default": "./d.js"}, "./e": "./e.js"}}`,
			"script:lib/a.js script:b.mjs? script:c.mjs? script:d.js?",
		},
		{"package without main", "package.json", `{"main": 1}`, "script:index.js"},
		{"exports is a file", "package.json", `{"exports": "./a.js"}`, "script:a.js"},
		{"no package", "package.json", `{"main": "a`, ""},
		{"other JSON", "tsconfig.json", `{"main": "a.js"}`, ""},

		{"shell", "a.sh", "#!/bin/sh\n. ./b.sh\n  source \"c/d.sh\"\necho . x\n.\n", "word:./b.sh word:c/d.sh"},
		{"parameters", "a.params", "-c\n-Ia\nb.o\n--out=c.jar\n", "include:a word:b.o word:c.jar"},
		{"binary", "a.o", "#include <a>\n", ""},
	} {
		ms, _ := Extract(c.name, []byte(c.content))
		if got := show(ms); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.about, got, c.want)
		}
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{
			strings.Fields("g++ -isystem a/b -I c -Id -iquotee -O2 -c -o f.o f.cc"),
			"word:g++ include:a/b include:c include:d include:e word:f.o word:f.cc",
		},
		{
			strings.Fields("python3 -B -m a.b x/y.py"),
			"module:encodings module:encodings/aliases module:encodings/utf_8 module:sitecustomize word:python3 module:a/b word:a.b word:x/y.py",
		},
		{
			[]string{"sh", "-c", "exec /opt/python3.9 a b"},
			"word:sh word:exec module:encodings module:encodings/aliases module:encodings/utf_8 module:sitecustomize module:a? word:a module:b? word:b",
		},
		{strings.Fields("protoc --proto_path=a --plugin=b/c @d.params"), "word:protoc include:a word:b/c arguments:d.params"},
		{[]string{"/bin/sh", "-c", `A="$PWD/a" exec b/c.sh <d; $e`}, "word:a word:exec word:b/c.sh word:d"},
		{[]string{"a", "-I"}, "word:a"},
		{[]string{"java", "bin", "/usr/bin/java", "javac/bin/x"}, "word:java word:bin word:javac/bin/x"},
		{
			[]string{"sh", "-c", "jdk/bin/javac @list"},
			"word:sh word:jdk/bin/javac word:jdk/lib/libjli.so word:jdk/lib/jvm.cfg word:jdk/lib/libjimage.so word:jdk/lib/libjava.so " +
				"word:jdk/lib/libnio.so word:jdk/lib/libnet.so word:jdk/conf/security/java.security arguments:list",
		},
	} {
		if got := show(Words(c.args)); got != c.want {
			t.Errorf("%q: %s\nwant %s", c.args, got, c.want)
		}
	}
}

func TestBounds(t *testing.T) {
	var many strings.Builder
	for i := range 2 * MaxMentions {
		fmt.Fprintf(&many, "#include <%d>\n", i)
	}
	for about, c := range map[string]struct {
		content string
		want    int
	}{
		"many":                     {many.String(), MaxMentions},
		"a file that is too large": {"#include <a>\n" + strings.Repeat(" ", MaxBytes), 0},
		"a long name":              {"#include <" + strings.Repeat("a", 2*maxName) + ">\n", 0},
		"a name of 512 bytes":      {"#include <" + strings.Repeat("a", maxName) + ">\n", 1},
	} {
		if ms, _ := Extract("a.c", []byte(c.content)); len(ms) != c.want {
			t.Errorf("%s: %d mentions, want %d", about, len(ms), c.want)
		}
	}
	if Readable("a.c", MaxBytes+1) || Readable("a.c", 0) || Readable("a.o", 1) || !Readable("a.c", 1) || !Readable("vector", 1) {
		t.Error("which files can be read")
	}
}

// hostile contents look for what takes more than linear time.
func hostile() map[string]string {
	texts := map[string]string{}
	for _, name := range []string{"a.c", "a.s", "a.py", "a.js", "package.json", "a.sh", "a.params", "a"} {
		for _, part := range []string{
			"#", "#include <", "#include \"a\"", "# define a <", "from a import (", "from a import (\n", "import a,", "import ",
			"from . import (a,\n", "require(", "require('", "require(/*", "import(\"a\")", "{\"exports\":", "[", ". a\n", ".include \"",
			"-I", "\n", " ", "\x00", "a", "a ", "import a\n", "x#",
		} {
			texts[name+" "+part] = strings.Repeat(part, MaxBytes/len(part))
		}
	}
	long, list := strings.Repeat("a", MaxBytes/2), strings.Repeat("b,", MaxBytes/4-20)
	texts["a.py long"] = "from " + long + " import " + list
	texts["a.py long path"] = "from " + strings.ReplaceAll(long, "aa", "a.") + "a import " + list
	texts["a.py long relative"] = "from ." + long + " import " + list
	texts["a.py long import"] = "import " + long + "," + list
	texts["a.c long condition"] = "#if " + strings.Repeat("__has_include(<", MaxBytes/15-1)
	texts["package.json exports"] = `{"exports":{".":{"node":{"node":["` + strings.Repeat(`a","`, MaxBytes/4-20) + `"]}}}}`
	return texts
}

// Hostile contents have few mentions and take memory, and so time, that does not grow with the square
// of their size.
func TestHostile(t *testing.T) {
	const most = 100 * MaxBytes // the square of the size is 5,000 times as much
	for about, text := range hostile() {
		name, _, _ := strings.Cut(about, " ")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if ms, _ := Extract(name, []byte(text)); len(ms) > MaxMentions {
			t.Errorf("%q: %d mentions", about, len(ms))
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > most {
			t.Errorf("%q: %d MiB are allocated", about, n>>20)
		}
	}
}

// TestKeepsNames: mentions keep their names, not the lines that have them.
func TestKeepsNames(t *testing.T) {
	for name, beginning := range map[string]string{
		"a.rsp": "word -", "a.py": "import word,", "b.py": "from word import ", "a.c": "#include <word>", "a.js": "require('word')",
	} {
		const files = 100
		var kept [files][]Mention
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range kept {
			kept[i], _ = Extract(name, []byte(beginning+strings.Repeat("!", MaxBytes-20)))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if len(kept[0]) == 0 {
			t.Errorf("%s has no mentions", name)
		}
		if n := int64(after.HeapAlloc) - int64(before.HeapAlloc); n > files*MaxBytes/10 {
			t.Errorf("%s: %d bytes are kept of each file", name, n/files)
		}
		runtime.KeepAlive(kept)
	}
}

func FuzzExtract(f *testing.F) {
	for about, text := range hostile() {
		name, _, _ := strings.Cut(about, " ")
		f.Add(name, text[:200])
	}
	f.Fuzz(func(t *testing.T, name, content string) {
		ms, _ := Extract(name, []byte(content))
		for _, m := range ms {
			if !valid(m.Name) {
				t.Errorf("%q cannot be a path", m.Name)
			}
			r := NewResolver(tree{".": Folder, "a": File})
			files, known := r.Resolve(name, m, true)
			if !known {
				t.Errorf("%v is not known in a known tree", m)
			}
			for _, file := range files {
				if file != "a" {
					t.Errorf("%v is at %q, which does not exist", m, file)
				}
			}
		}
	})
}

// TestSteps: what takes long has many steps.
func TestSteps(t *testing.T) {
	texts := hostile()
	for _, about := range []string{
		"a.c x#", "a.c long condition", "a.py \n", "a.py import a,", "a.py long import", "a.js require(", "a.sh \n", "a.params a ",
		"package.json exports",
	} {
		name, _, _ := strings.Cut(about, " ")
		text, ok := texts[about]
		if _, steps := Extract(name, []byte(text)); !ok || steps < 20_000 {
			t.Errorf("%q has %d steps", about, steps)
		}
	}
}

// BenchmarkHostile reads contents that take long.
func BenchmarkHostile(b *testing.B) {
	for about, text := range hostile() {
		b.Run(about, func(b *testing.B) {
			name, _, _ := strings.Cut(about, " ")
			steps := 0
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, steps = Extract(name, []byte(text))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*max(steps+len(text)/64, 1)), "ns/step")
		})
	}
}

// BenchmarkExtract reads 100 KB of each language.
func BenchmarkExtract(b *testing.B) {
	random := rand.New(rand.NewPCG(20, 1))
	for name, line := range map[string]string{
		"a.hpp": "#include <boost/a%d/detail/b.hpp>\n", "a.py": "from a%d.b import c, d\n", "a.js": "const a = require(\"./a%d/b\");\n",
	} {
		var text strings.Builder
		for text.Len() < 100_000 {
			if random.IntN(20) == 0 {
				fmt.Fprintf(&text, line, random.IntN(1000))
			} else {
				fmt.Fprintf(&text, "    some.code(%d) = is_here + and(there);\n", random.IntN(1000))
			}
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				Extract(name, []byte(text.String()))
			}
		})
	}
}
