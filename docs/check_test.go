package docs

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testPages checks that all code between fences has a known language, and that links lead to a file
// and a heading.
func testPages(t *testing.T) {
	allBlocks(t)
	targets := targets{}
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			to := filepath.Join(filepath.Dir(page), m[1])
			if m[1] == "" {
				to = page
			}
			targets.check(t, page, to, m[2])
		}
	}
}

// testReferences checks what code, manifests and alerts say of these pages, as in
// "docs/SECURITY.md#floods".
func testReferences(t *testing.T) {
	reference := regexp.MustCompile(`\b(docs/[A-Za-z_/-]+\.md)(#[a-z0-9-]+)?`)
	found, targets := 0, targets{}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "build", "node_modules"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".html", ".json", ".service", ".yaml"}, filepath.Ext(name)):
			return nil
		}
		text := read(t, name)
		if !strings.Contains(text, "docs/") { // so that the expression is tried on few of them
			return nil
		}
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			targets.check(t, name, filepath.Join("..", m[1]), m[2])
			found++
		}
		return nil
	})
	if err != nil || found < 20 {
		t.Errorf("%d references to these pages, %v", found, err)
	}
}

// targets has the anchors of pages, by file.
type targets map[string][]string

// check checks that a file, and a heading in it, exist.
func (all targets) check(t *testing.T, from, to, anchor string) {
	t.Helper()
	if _, err := os.Stat(to); err != nil {
		t.Errorf("%s: %v", from, err)
		return
	}
	if anchor == "" {
		return
	}
	if _, known := all[to]; !known {
		all[to] = anchors(read(t, to))
	}
	if !slices.Contains(all[to], anchor) {
		t.Errorf("%s: %s has no heading for %s", from, to, anchor)
	}
}

var (
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors returns how links name the headings of a page.
func anchors(page string) (list []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		list = append(list, "#"+strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return list
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// elsewhere are flags of other programs, which are named as well. Bazel's have "_" in their names.
var elsewhere = []string{"--help", "--cap-add", "--cgroupns", "--device", "--jobs", "--privileged"}

// A program has the verbs of one of our programs, such as "forerunner queue list", and the flags of
// each.
type program map[string][]string

var (
	subcommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +\S`)
	flagName   = regexp.MustCompile(`(?m)^ +(?:-\w, |    )(--[a-z][a-z0-9-]*)`)
)

// verbTitles are the headings of verbs in help texts.
var verbTitles = []string{"Available Commands:", "Additional Commands:", "Run:", "See what happens:", "Operate:"}

// helpOf asks a program for all that it takes.
func helpOf(t *testing.T, path string, verbs ...string) program {
	t.Helper()
	out, err := exec.Command(path, append(verbs, "--help")...).Output()
	if err != nil {
		t.Fatalf("%s %q --help: %v", path, verbs, err)
	}
	p := program{}
	var flags []string
	for _, m := range flagName.FindAllStringSubmatch(string(out), -1) {
		flags = append(flags, m[1])
	}
	p[strings.Join(append([]string{filepath.Base(path)}, verbs...), " ")] = flags
	for part := range strings.SplitSeq(string(out), "\n\n") {
		title, list, _ := strings.Cut(part, "\n")
		if !slices.Contains(verbTitles, title) {
			continue
		}
		for _, m := range subcommand.FindAllStringSubmatch(list, -1) {
			if m[1] != "help" {
				maps.Copy(p, helpOf(t, path, append(slices.Clone(verbs), m[1])...))
			}
		}
	}
	return p
}

// testHelp compares the pages with the help of the programs: verbs and flags on the pages exist,
// and the pages have each flag of scheduler and worker.
func testHelp(t *testing.T, programs string) {
	takes := program{}
	for _, name := range []string{"forerunner", "forerunner-scheduler", "forerunner-worker"} {
		maps.Copy(takes, helpOf(t, filepath.Join(programs, name)))
	}
	known := map[string]bool{}
	for _, flags := range takes {
		for _, flag := range flags {
			known[flag] = true
		}
	}
	named := map[string]bool{}
	for _, page := range pages(t) {
		if page == "BENCHMARKS.md" {
			continue // these flags belong to the benchmarks
		}
		for _, m := range regexp.MustCompile("`(--[a-z][a-z0-9_-]*)").FindAllStringSubmatch(read(t, page), -1) {
			named[m[1]] = true
			if !known[m[1]] && !strings.Contains(m[1], "_") && !slices.Contains(elsewhere, m[1]) {
				t.Errorf("%s: no program has a flag %s", page, m[1])
			}
		}
		for _, m := range regexp.MustCompile("`(forerunner [a-z][a-z -]*)").FindAllStringSubmatch(read(t, page), -1) {
			if _, ok := takes.verb(strings.Fields(m[1])); !ok {
				t.Errorf("%s: there is no verb %q", page, m[1])
			}
		}
	}
	for _, name := range []string{"forerunner-scheduler", "forerunner-worker"} {
		for _, flag := range takes[name] {
			if !named[flag] && !slices.Contains(elsewhere, flag) {
				t.Errorf("flag %s of %s is in no page", flag, name)
			}
		}
	}
	for _, b := range allBlocks(t) {
		takes.check(t, b)
	}
}

// verb returns which of the verbs begins with these words, the longest; at least one word beyond
// the program.
func (p program) verb(words []string) (name string, ok bool) {
	for n := len(words); n > 0; n-- {
		if name := strings.Join(words[:n], " "); p[name] != nil {
			return name, n > 1 || len(words) == 1 || strings.HasPrefix(words[1], "-") || strings.HasPrefix(name, "forerunner-")
		}
	}
	return "", false
}

// check looks at a block that is not run, and at variables of the environment.
func (p program) check(t *testing.T, b block) {
	t.Helper()
	if b.language == "ini" {
		for _, m := range regexp.MustCompile(`(?m)^FORERUNNER_(\w+)=`).FindAllStringSubmatch(b.text, -1) {
			flag := "--" + strings.ReplaceAll(strings.ToLower(m[1]), "_", "-")
			if !slices.Contains(p["forerunner-scheduler"], flag) && !slices.Contains(p["forerunner-worker"], flag) {
				t.Errorf("%s: FORERUNNER_%s is no flag of scheduler and worker", b, m[1])
			}
		}
	}
	if b.notRun == "" {
		return
	}
	makefile := read(t, "../Makefile")
	lines := strings.ReplaceAll(b.script(), "\\\n", " ")
	for _, command := range regexp.MustCompile(`\n|;|&&|\|`).Split(lines, -1) {
		command, _, _ = strings.Cut(command, " #")
		words := strings.Fields(command)
		switch {
		case len(words) == 0:
		case words[0] == "make":
			for _, target := range words[1:] {
				if strings.Contains(target, "=") {
					break
				}
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s: make has no target %s", b, target)
				}
			}
		case strings.HasPrefix(strings.TrimPrefix(words[0], "bin/"), "forerunner"):
			words[0] = strings.TrimPrefix(words[0], "bin/")
			p.checkCommand(t, b, words)
		}
		for _, word := range words {
			if strings.HasPrefix(word, "deploy/") {
				if found, err := filepath.Glob(filepath.Join("..", word)); err != nil || len(found) == 0 {
					t.Errorf("%s: there is no %s", b, word)
				}
			}
		}
	}
}

// checkCommand looks at the verb and the flags of a command of ours.
func (p program) checkCommand(t *testing.T, b block, words []string) {
	t.Helper()
	name, ok := p.verb(words)
	if !ok {
		t.Errorf("%s: there is no verb %q", b, words)
		return
	}
	for _, word := range words {
		if word == "--" {
			return
		}
		flag, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(flag, "--") && !slices.Contains(p[name], flag) {
			t.Errorf("%s: %s has no flag %s", b, name, flag)
		}
	}
}
