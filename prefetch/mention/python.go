package mention

import (
	"bytes"
	"strings"
)

// maxList limits the length of the names in parentheses.
const maxList = 4 << 10

// python finds the modules that a program imports. Names in parentheses may be on several lines.
// Those that need not be read are doubtful.
func (f *found) python(content []byte) {
	lazy := false // the statement that indented lines belong to need not be run
	for i := 0; i < len(content); {
		f.steps++
		end := lineOf(content, i)
		line := content[i:end]
		text := bytes.TrimLeft(line, " \t")
		inside := len(text) < len(line) && lazy
		if len(text) == len(line) && len(text) > 0 && isWord(text[0]) {
			lazy = runsLater(text)
		}
		switch {
		case bytes.HasPrefix(text, []byte("import ")):
			f.imports(text[len("import "):], inside)
		case bytes.HasPrefix(text, []byte("from ")):
			f.steps += 4
			text = text[len("from "):]
			if open := bytes.IndexByte(text, '('); open >= 0 && bytes.IndexByte(text, ')') < 0 {
				if n := bytes.IndexByte(content[end:min(end+maxList, len(content))], ')'); n >= 0 {
					text = content[end-len(text) : end+n]
					end += n
				}
			}
			f.from(text, inside)
		}
		i = end + 1
	}
}

// runsLater reports whether a statement that begins so has lines that are not run at once, or at all.
func runsLater(text []byte) bool {
	for _, start := range []string{"def ", "class ", "async ", "except", "if __name__", "if TYPE_CHECKING", "if typing.TYPE_CHECKING"} {
		if bytes.HasPrefix(text, []byte(start)) {
			return true
		}
	}
	return false
}

// imports finds the modules in "a.b as c, d".
func (f *found) imports(text []byte, inside bool) {
	text, _, _ = bytes.Cut(text, []byte("#"))
	text, _, _ = bytes.Cut(text, []byte(";"))
	for item := range strings.SplitSeq(string(text), ",") {
		f.steps++
		if fields := strings.Fields(item); len(fields) > 0 {
			f.module(Module, fields[0], inside)
		}
	}
}

// from finds the modules in "a.b import c, d as e".
func (f *found) from(text []byte, inside bool) {
	module, names, ok := strings.Cut(string(text), " import")
	if !ok {
		return
	}
	module = strings.TrimSpace(module)
	base := strings.TrimLeft(module, ".")
	kind, prefix := Module, ""
	if up := len(module) - len(base); up > 0 {
		kind, prefix = Relative, strings.Repeat("../", min(up, 16)-1)
		if base == "" {
			base = "."
		}
	}
	if len(base) > maxName || !identifiers(strings.TrimPrefix(base, ".")) {
		return
	}
	at := prefix + strings.ReplaceAll(base, ".", "/")
	if base == "." {
		at = prefix + "."
	}
	f.add(kind, at, inside)
	for _, item := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == '\n' || r == '(' || r == ')' }) {
		f.steps++
		fields := strings.Fields(item)
		if len(fields) == 0 || !identifiers(fields[0]) {
			continue
		}
		if kind == Relative {
			f.add(Relative, at+"/"+fields[0], inside)
		} else {
			f.add(Submodule, at+"/"+fields[0], inside)
		}
	}
}

func (f *found) module(k Kind, dotted string, inside bool) {
	if dotted != "" && len(dotted) <= maxName && identifiers(dotted) {
		f.add(k, strings.ReplaceAll(dotted, ".", "/"), inside)
	}
}

// identifiers reports whether text has only identifiers and single dots between them.
func identifiers(text string) bool {
	last := byte('.')
	for i := range len(text) {
		if c := text[i]; !isWord(c) && (c != '.' || last == '.') {
			return false
		}
		last = text[i]
	}
	return text == "" || last != '.'
}
