package mention

import (
	"bytes"
	"path"
	"strings"
)

// The bounds of one file.
const (
	// MaxBytes is the size above which Extract does not read a file.
	MaxBytes = 512 << 10
	// MaxMentions limits the mentions of one file.
	MaxMentions = 4096
	maxName     = 512
	// maxBefore is how far before a keyword the beginning of its line is looked for.
	maxBefore = 64
)

// A Kind says by which rules the file of a Mention is found.
type Kind uint8

// The kinds of mentions.
const (
	Quoted    Kind = iota // #include "x.h": beside the file, or in a folder of headers
	Bracketed             // #include <x.h>: in a folder of headers
	Module                // import a.b: a Python module, as a path
	Submodule             // from a import b: a Python module a/b, if a is a package that has it
	Relative              // from .a import b: a Python module, as a path from the file's folder
	Script                // require("./x"): a JavaScript module, as a path from the file's folder
	Package               // require("x/y"): a JavaScript module of a package
	Word                  // a word of a command line, that may be the path of a file
	Arguments             // @x: a file with words of a command line
	Include               // -I x: a folder of headers
)

// A Mention is the name of a file in another file.
type Mention struct {
	Kind Kind
	Name string
	// Doubtful: the file is less likely to be read, for example because only a function needs it.
	Doubtful bool
}

// A language says how to find mentions.
type language uint8

const (
	unknown language = iota
	cLike
	assembly
	python
	javaScript
	packageFile
	shell
	parameters
)

// languageOf returns the language of a file by its name, or by how its content begins.
func languageOf(name string, content []byte) language {
	base := path.Base(name)
	if base == "package.json" {
		return packageFile
	}
	switch strings.ToLower(path.Ext(base)) {
	case ".h", ".hh", ".hpp", ".hxx", ".h++", ".ipp", ".tcc", ".tpp", ".inl", ".inc", ".def", ".c", ".cc", ".cpp",
		".cxx", ".c++", ".m", ".mm", ".cu", ".cuh":
		return cLike
	case ".s", ".asm":
		return assembly
	case ".py", ".pyi", ".pyw":
		return python
	case ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx":
		return javaScript
	case ".sh", ".bash":
		return shell
	case ".params", ".rsp":
		return parameters
	case "":
		return languageInside(content)
	}
	return unknown
}

// languageInside returns the language of a file without an extension: a script, or a header of the
// C++ library.
func languageInside(content []byte) language {
	first, _, _ := bytes.Cut(content[:min(len(content), 256)], []byte("\n"))
	switch {
	case !bytes.HasPrefix(first, []byte("#!")):
		if bytes.Contains(content[:min(len(content), 16<<10)], []byte("#include")) {
			return cLike
		}
	case bytes.Contains(first, []byte("python")):
		return python
	case bytes.Contains(first, []byte("node")):
		return javaScript
	case bytes.Contains(first, []byte("sh")):
		return shell
	}
	return unknown
}

// Readable reports whether a file with that name and size can mention others, as far as its name
// says.
func Readable(name string, bytes int64) bool {
	if bytes == 0 || bytes > MaxBytes {
		return false
	}
	return path.Ext(name) == "" || languageOf(name, nil) != unknown
}

// NameOfArguments returns the name by which Extract reads a file of Arguments, whatever its own is.
func NameOfArguments(name string) string { return name + ".params" }

// Extract returns the mentions in the content of the file with that name, in their order, and in how
// many steps it has found them, of at most about 200 ns each. It also reads all of the content.
func Extract(name string, content []byte) (mentions []Mention, steps int) {
	if len(content) > MaxBytes {
		return nil, 0
	}
	var f found
	switch languageOf(name, content) {
	case cLike:
		f.c(content)
	case assembly:
		f.c(content)
		f.assembly(content)
	case python:
		f.python(content)
	case javaScript:
		f.javaScript(content)
	case packageFile:
		f.packageFile(content)
	case shell:
		f.shell(content)
	case parameters:
		f.words(strings.Fields(string(content)))
	}
	return f.mentions, f.steps
}

// found collects mentions, each once.
type found struct {
	mentions []Mention
	steps    int
	known    map[Mention]struct{}
}

func (f *found) add(k Kind, name string, doubtful bool) {
	if len(f.mentions) == MaxMentions || !valid(name) {
		return
	}
	m := Mention{k, name, doubtful}
	if _, again := f.known[m]; again {
		return
	}
	m.Name = strings.Clone(name) // a part of a long line would keep all of it
	if f.known == nil {
		f.known = map[Mention]struct{}{}
	}
	f.known[m] = struct{}{}
	f.mentions = append(f.mentions, m)
}

// valid reports whether name can be a path in an input tree.
func valid(name string) bool {
	if name == "" || len(name) > maxName || name[0] == '/' {
		return false
	}
	for i := range len(name) {
		if name[i] < ' ' || name[i] == '\\' {
			return false
		}
	}
	return true
}

// lineOf returns the end of the line that contains offset i.
func lineOf(content []byte, i int) (end int) {
	if n := bytes.IndexByte(content[i:], '\n'); n >= 0 {
		return i + n
	}
	return len(content)
}

// before returns how the line with offset i begins, up to i; false if it is too long.
func before(content []byte, i int) (line []byte, ok bool) {
	from := max(0, i-maxBefore)
	if n := bytes.LastIndexByte(content[from:i], '\n'); n >= 0 {
		return content[from+n+1 : i], true
	}
	return content[from:i], from == 0
}

func blank(line []byte) bool { return len(bytes.TrimLeft(line, " \t")) == 0 }
