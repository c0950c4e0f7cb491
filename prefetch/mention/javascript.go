package mention

import (
	"bytes"
	"encoding/json"
	"strings"
)

// maxTargets limits the files that a package.json mentions.
const maxTargets = 8

// javaScript finds the modules that a program imports or requires.
func (f *found) javaScript(content []byte) {
	for _, keyword := range []string{"require", "from", "import"} {
		for i := 0; i < len(content); {
			n := bytes.Index(content[i:], []byte(keyword))
			if n < 0 {
				break
			}
			at := i + n
			i = at + len(keyword)
			f.steps += 4
			if at > 0 && (isWord(content[at-1]) || content[at-1] == '.' || content[at-1] == '$') {
				continue
			}
			if name, ok := specifier(content[i:min(len(content), i+maxName+32)]); ok {
				line, whole := before(content, at)
				f.specified(name, !whole || len(line) > 0 && (line[0] == ' ' || line[0] == '\t'))
			}
		}
	}
}

// specifier returns the module in text, which follows a keyword.
func specifier(text []byte) (name []byte, ok bool) {
	text = bytes.TrimPrefix(text, []byte(".resolve"))
	text = bytes.TrimLeft(text, " \t\n")
	if bytes.HasPrefix(text, []byte("(")) {
		text = bytes.TrimLeft(text[1:], " \t\n")
		for bytes.HasPrefix(text, []byte("/*")) { // such as /* webpackChunkName: "x" */
			_, after, found := bytes.Cut(text, []byte("*/"))
			if !found {
				return nil, false
			}
			text = bytes.TrimLeft(after, " \t\n")
		}
	}
	if len(text) < 2 || text[0] != '"' && text[0] != '\'' {
		return nil, false
	}
	n := bytes.IndexByte(text[1:], text[0])
	if n <= 0 || bytes.IndexByte(text[1:n+1], '\n') >= 0 {
		return nil, false
	}
	return text[1 : n+1], true
}

// specified adds a module by the text with which a program imports it.
func (f *found) specified(name []byte, doubtful bool) {
	text, _, _ := strings.Cut(string(name), "?")
	switch {
	case text == "." || text == ".." || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../"):
		f.add(Script, text, doubtful)
	case !strings.ContainsAny(text, ":# \t*{}<>()!"):
		f.add(Package, text, doubtful)
	}
}

// packageFile finds the main files of a JavaScript package.
func (f *found) packageFile(content []byte) {
	var p struct {
		Main, Module json.RawMessage
		Exports      json.RawMessage
	}
	if !f.unmarshal(content, &p) {
		return
	}
	var targets []string
	for _, raw := range []json.RawMessage{p.Main, p.Module} {
		var text string
		if f.unmarshal(raw, &text) {
			targets = append(targets, text)
		}
	}
	targets = append(targets, f.exported(p.Exports)...)
	if len(targets) == 0 {
		targets = append(targets, "index.js")
	}
	for i, target := range targets {
		if i == maxTargets {
			return
		}
		if !strings.Contains(target, "*") && !strings.HasPrefix(target, "/") {
			f.add(Script, strings.TrimPrefix(target, "./"), i > 0)
		}
	}
}

// bytesOfStep of JSON are decoded in a step.
const bytesOfStep = 8

// unmarshal decodes raw, and reports whether it is of that type.
func (f *found) unmarshal(raw []byte, into any) bool {
	f.steps += len(raw) / bytesOfStep
	return json.Unmarshal(raw, into) == nil
}

// exported returns the files of the main entry of "exports".
func (f *found) exported(raw json.RawMessage) []string {
	entries := map[string]json.RawMessage{}
	if !f.unmarshal(raw, &entries) {
		return f.conditions(raw, 0)
	}
	if main, ok := entries["."]; ok {
		return f.conditions(main, 0)
	}
	return f.conditions(raw, 0)
}

// conditions returns the files for some of the conditions in "exports".
func (f *found) conditions(raw json.RawMessage, depth int) (targets []string) {
	var text string
	if f.unmarshal(raw, &text) && text != "" {
		return []string{text}
	}
	entries := map[string]json.RawMessage{}
	if depth > 4 || !f.unmarshal(raw, &entries) {
		return nil
	}
	for _, condition := range []string{"node", "import", "require", "default"} {
		if next, ok := entries[condition]; ok {
			targets = append(targets, f.conditions(next, depth+1)...)
		}
	}
	return targets[:min(len(targets), maxTargets)]
}
