// Package docs is the documentation, with tests that compare it with the programs: each command in
// it is run, or has a comment with the reason why not.
package docs

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A block is a piece of a page between fences.
type block struct {
	page     string // such as "OPERATING.md"
	line     int    // of its first line
	language string
	notRun   string // why it cannot be run; empty: it is
	text     string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// languages are the languages of code blocks. Commands in sh are run, and in console the text after
// "$ "; the others contain no commands.
var languages = []string{"sh", "console", "yaml", "text", "ini", "bazelrc", "promql", "json", "go"}

// notRun is the line before the fence of a block that is not run.
var notRun = regexp.MustCompile(`^<!-- not run: (.+) -->$`)

// pages are all files that are read by tests.
func pages(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob("*.md")
	if err != nil || len(list) < 10 {
		t.Fatalf("pages %q, %v", list, err)
	}
	reference, err := filepath.Glob("reference/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(append(list, reference...), "../README.md", "../CONTRIBUTING.md")
}

// blocks returns the blocks of a page, and their faults.
func blocks(page string) (list []block, faults []string, err error) {
	file, err := os.Open(page)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	var open *block
	before, n := "", 0
	for lines := bufio.NewScanner(file); lines.Scan(); before = lines.Text() {
		n++
		line := lines.Text()
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open != nil:
			list, open = append(list, *open), nil
		case fence:
			open = &block{page: filepath.Base(page), line: n + 1, language: language}
			if m := notRun.FindStringSubmatch(before); m != nil {
				open.notRun = m[1]
			}
			if !slices.Contains(languages, language) {
				faults = append(faults, fmt.Sprintf("%s: language %q is none of %q", open, language, languages))
			}
		case open != nil:
			open.text += line + "\n"
		case before == "" && strings.HasPrefix(line, "    "):
			faults = append(faults, fmt.Sprintf("%s:%d: code goes between fences, with its language", page, n))
		}
	}
	if open != nil {
		faults = append(faults, open.String()+": the fence is not closed")
	}
	return list, faults, nil
}

// allBlocks returns the blocks of all pages.
func allBlocks(t *testing.T) (all []block) {
	t.Helper()
	for _, page := range pages(t) {
		list, faults, err := blocks(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range faults {
			t.Error(fault)
		}
		all = append(all, list...)
	}
	return all
}

// script returns the commands of a block; empty if there are none.
func (b block) script() string {
	switch b.language {
	case "sh":
		return b.text
	case "console":
		var commands strings.Builder
		for line := range strings.Lines(b.text) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				commands.WriteString(command)
			}
		}
		return commands.String()
	}
	return ""
}
