package mention

import (
	"bytes"
	"strings"
)

// Words returns the mentions of a command line. An argument that is a shell script counts as its
// words.
func Words(args []string) []Mention {
	var f found
	var words []string
	left := MaxBytes
	for _, arg := range args {
		if left -= len(arg) + 1; left < 0 {
			break
		}
		if !strings.ContainsAny(arg, " \t\n;|&<>()") {
			words = append(words, arg)
			continue
		}
		words = append(words, strings.FieldsFunc(arg, func(r rune) bool { return strings.ContainsRune(" \t\n;|&<>()", r) })...)
	}
	f.words(words)
	return f.mentions
}

// folderFlags precede a folder of headers, in the same word or as the word before.
func folderFlags() []string {
	return []string{"-isystem", "-iquote", "-idirafter", "-I", "--include-directory", "--proto_path"}
}

// words adds the words of a command line. Those for Python may be modules.
func (f *found) words(words []string) {
	python := false
	for i := 0; i < len(words); i++ {
		f.steps++
		word := strings.Trim(words[i], `"'`)
		if python && !strings.HasSuffix(word, ".py") {
			f.module(Module, word, words[i-1] != "-m")
		}
		if !python && isPython(word) {
			python = true
			for _, name := range startModules {
				f.add(Module, name, false)
			}
		}
		if folder, next, ok := folderOf(word, words[i+1:]); ok {
			f.add(Include, folder, false)
			if next {
				i++
			}
			continue
		}
		if _, value, ok := strings.Cut(word, "="); ok {
			word = strings.Trim(value, `"'`)
		}
		k := Word
		if file, ok := strings.CutPrefix(word, "@"); ok {
			k, word = Arguments, file
		}
		word = strings.TrimPrefix(word, "$PWD/")
		if word != "" && word[0] != '-' && word[0] != '$' {
			f.add(k, word, false)
			f.starts(word)
		}
	}
}

// folderOf returns the folder of headers that word names, or that the next word is.
func folderOf(word string, rest []string) (folder string, next, ok bool) {
	for _, flag := range folderFlags() {
		value, has := strings.CutPrefix(word, flag)
		switch {
		case !has:
		case value == "" && len(rest) > 0:
			return strings.Trim(rest[0], `"'`), true, true
		case value != "":
			return strings.TrimPrefix(value, "="), false, true
		}
	}
	return "", false, false
}

// shell finds the scripts that a shell script reads, and the programs with a path that it starts.
func (f *found) shell(content []byte) {
	for line := range bytes.Lines(content) {
		f.steps++
		fields := strings.Fields(string(line[:min(len(line), 2*maxName)]))
		if len(fields) > 1 && (fields[0] == "." || fields[0] == "source") {
			f.words(fields[1:2])
		}
	}
}
