package mention

import (
	"bytes"
	"path"
)

// c finds what directives of the C preprocessor include, also by a macro that names a header.
func (f *found) c(content []byte) {
	for i := 0; i < len(content); {
		n := bytes.IndexByte(content[i:], '#')
		if n < 0 {
			return
		}
		i += n + 1
		f.steps++
		if line, ok := before(content, i-1); !ok || !blank(line) {
			continue
		}
		end := lineOf(content, i)
		f.directive(bytes.TrimLeft(content[i:end], " \t"))
		i = end
	}
}

// directive finds a header in a directive, which comes without its #.
func (f *found) directive(line []byte) {
	name, rest := splitWord(line)
	switch string(name) {
	case "include", "include_next", "import", "embed":
		f.header(rest, false)
	case "if", "elif":
		f.tested(rest)
	case "define":
		_, value := splitWord(rest)
		f.header(value, true)
	}
}

// tested finds the headers in a condition that asks whether they exist: compilers open them for that.
func (f *found) tested(condition []byte) {
	for {
		_, rest, ok := bytes.Cut(condition, []byte("__has_include"))
		if !ok {
			return
		}
		condition = rest
		f.steps++
		rest = bytes.TrimPrefix(rest, []byte("_next"))
		if header, ok := bytes.CutPrefix(bytes.TrimLeft(rest, " \t"), []byte("(")); ok {
			f.header(bytes.TrimLeft(header, " \t"), false)
		}
	}
}

// splitWord splits off the first word of letters, digits and underscores.
func splitWord(line []byte) (word, rest []byte) {
	n := 0
	for n < len(line) && isWord(line[n]) {
		n++
	}
	return line[:n], bytes.TrimLeft(line[n:], " \t")
}

func isWord(b byte) bool {
	return b == '_' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b >= 0x80
}

// header finds a header in quotes or brackets at the start of text. As the value of a macro it must
// look like a header.
func (f *found) header(text []byte, macro bool) {
	if len(text) < 3 {
		return
	}
	text = text[:min(len(text), maxName+2)] // a long line can have many that do not end
	kind, until := Quoted, byte('"')
	switch text[0] {
	case '"':
	case '<':
		kind, until = Bracketed, '>'
	default:
		return
	}
	n := bytes.IndexByte(text[1:], until)
	if n < 0 {
		return
	}
	name := string(text[1 : n+1])
	if macro {
		switch path.Ext(name) {
		case ".h", ".hh", ".hpp", ".hxx", ".ipp", ".inc", ".inl", ".def":
		default:
			return
		}
	}
	f.add(kind, name, macro)
}

// assembly finds what directives of an assembler include.
func (f *found) assembly(content []byte) {
	for i := 0; i < len(content); {
		n := bytes.Index(content[i:], []byte(".inc"))
		if n < 0 {
			return
		}
		i += n
		f.steps++
		end := lineOf(content, i)
		if line, ok := before(content, i); ok && blank(line) {
			directive, rest := splitWord(content[i+1 : end])
			if d := string(directive); d == "include" || d == "incbin" {
				f.header(rest, false)
			}
		}
		i = end
	}
}
