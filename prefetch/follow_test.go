package prefetch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/prefetch/follow"
)

// A library is an input root with contents, which are read while a command runs.
type library struct {
	*storage
	root     digest.Digest
	contents map[digest.Digest]string
	scanned  map[digest.Digest]int // how often a content was read; guarded by storage.mu
}

// newLibrary makes an input root. Names of files must be different in all folders.
func newLibrary(t *testing.T, files map[string]string) *library {
	t.Helper()
	l := &library{storage: newStorage(), contents: map[digest.Digest]string{}, scanned: map[digest.Digest]int{}}
	var paths []string
	for path, content := range files {
		paths = append(paths, fmt.Sprintf("%s:%d", path, len(content)))
	}
	slices.Sort(paths)
	l.root = l.put(t, paths...)
	for path, content := range files {
		l.contents[l.at(t, l.root, path)] = content
	}
	return l
}

func (l *library) content(d digest.Digest) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scanned[d]++; !l.local[d] {
		return nil, false
	}
	return []byte(l.contents[d]), true
}

// run has a command read files, one after another, and returns how many round trips it waits.
func (l *library) run(t *testing.T, r *Race, paths ...string) (trips int) {
	t.Helper()
	began := time.Now()
	for _, path := range paths {
		for i := range len(path) {
			if path[i] == '/' {
				l.need(t, l.at(t, l.root, path[:i]))
			}
		}
		r.Opened(path, tree.File)
		d := l.at(t, l.root, path)
		was := cas.Local
		if !l.has(d) {
			was = cas.Absent
		}
		l.need(t, d)
		r.Came(d, was)
		synctest.Wait()
	}
	return int(time.Since(began) / roundTrip)
}

func (l *library) need(t *testing.T, d digest.Digest) {
	for !l.has(d) {
		if _, err := l.bring(t.Context(), []digest.Digest{d}); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts a Race for a command with these words, and waits until it has the directories.
func (l *library) start(t *testing.T, s Spec, args ...string) *Race {
	s.Root, s.Source, s.Contents = l.root, l, l.content
	r := Start(t.Context(), s)
	if args != nil {
		r.KnowCommand(Command{Args: args})
	}
	time.Sleep(20 * roundTrip)
	synctest.Wait()
	return r
}

// levels is a source whose headers include headers, and so on; all are in folders of their own. It
// returns its files, and their order.
func levels(depth, width int) (files map[string]string, order []string) {
	at := func(i, j int) string { return fmt.Sprintf("p%d_%d/q/h%d_%d.h", j, i, i, j) }
	including := func(i int) string {
		var text strings.Builder
		for j := range width {
			fmt.Fprintf(&text, "#include <%s>\n", at(i, j))
		}
		return text.String()
	}
	files = map[string]string{"main.cc": including(0)}
	order = []string{"main.cc"}
	for i := range depth {
		for j := range width {
			content := fmt.Sprintf("int a_%d_%d;\n", i, j)
			if i+1 < depth {
				content += including(i + 1)
			}
			files["include/"+at(i, j)] = content
			order = append(order, "include/"+at(i, j))
		}
	}
	return files, order
}

// A command waits for one round trip for each level of includes, not for each file.
func TestMentionsTakeATripForEachLevel(t *testing.T) {
	const depth, width = 8, 12
	files, order := levels(depth, width)
	for _, c := range []struct {
		about       string
		args        []string
		least, most int
	}{
		{"without a command line", nil, depth, depth + 2},
		{"with one, they are there before", strings.Fields("g++ -Iinclude main.cc"), 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLibrary(t, files)
			r := l.start(t, Spec{}, c.args...)
			trips := l.run(t, r, order...)
			if stats := r.Stop(); trips < c.least || trips > c.most {
				t.Errorf("%s: waited %d round trips for %d levels of %d files, want %d to %d; %+v",
					c.about, trips, depth, width, c.least, c.most, stats)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t, files)
		r := l.start(t, Spec{Limits: NewLimits(LimitsOptions{NoMentions: true})})
		if trips := l.run(t, r, order...); trips <= depth+2 {
			t.Errorf("only %d round trips without mentions: the test shows nothing", trips)
		}
		r.Stop()
		if len(l.scanned) > 0 {
			t.Errorf("%d files were read although it is off", len(l.scanned))
		}
	})
}

// What is mentioned and not read costs a bounded number of bytes.
func TestMentionsThatAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := map[string]string{}
		var text strings.Builder
		for i := range 200 {
			fmt.Fprintf(&text, "#include \"d%d/f%d.h\"\n", i, i)
			files[fmt.Sprintf("d%d/f%d.h", i, i)] = strings.Repeat("x", 100_000+i)
		}
		files["main.c"] = text.String()
		l := newLibrary(t, files)
		r := l.start(t, Spec{})
		l.run(t, r, "main.c")
		time.Sleep(time.Hour)
		synctest.Wait()
		if bytes := l.fileBytes(); bytes > follow.FreeBytes+10_000 || bytes < follow.FreeBytes/2-200_000 {
			t.Errorf("%d bytes came", bytes)
		}
		for i := range 30 { // which is right, so there is more credit
			l.run(t, r, fmt.Sprintf("d%d/f%d.h", i, i))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if bytes := l.fileBytes(); bytes < follow.FreeBytes/2+follow.Credit*2_000_000 {
			t.Errorf("only %d bytes came when 3 MB had been read", bytes)
		}
		r.Stop()
	})
}

// If a profile foresees what is read, nothing is scanned; of what it lacks, the mentions come.
func TestMentionsOfUnforeseenFilesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, order := levels(3, 4)
		files["other/main2.cc"] = "#include \"x/y.h\"\n"
		files["other/x/y.h"] = "int y;\n"
		l := newLibrary(t, files)
		r := l.start(t, Spec{Profile: profileOf(order...)}, "g++", "other/main2.cc")
		if trips := l.run(t, r, order...); trips > 0 || len(l.scanned) > 0 {
			t.Errorf("waited %d trips, read %d files", trips, len(l.scanned))
		}
		l.run(t, r, "other/main2.cc")
		time.Sleep(10 * roundTrip)
		synctest.Wait()
		if !l.has(l.at(t, l.root, "other/x/y.h")) {
			t.Error("the mentioned file did not come")
		}
		r.Stop()
	})
}

// The command line of a race with a profile has its say when the command opens a file that the profile
// lacks, whether it is known before or after that.
func TestCommandIsKnownLater(t *testing.T) {
	for _, c := range []struct {
		about, opened string
		before, came  bool
	}{
		{"a right profile", "right.h", true, false}, {"known first", "wrong.h", true, true}, {"known last", "wrong.h", false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLibrary(t, map[string]string{"src/main.cc": "int main;\n", "right.h": "int r;\n", "wrong.h": "int w;\n"})
			r := l.start(t, Spec{Profile: profileOf("right.h")})
			if c.before {
				r.KnowCommand(Command{Args: []string{"g++", "main.cc"}, WorkingDirectory: "src"})
			}
			l.run(t, r, c.opened)
			if !c.before {
				r.KnowCommand(Command{Args: []string{"g++", "main.cc"}, WorkingDirectory: "src"})
			}
			time.Sleep(10 * roundTrip)
			synctest.Wait()
			if came := l.has(l.at(t, l.root, "src/main.cc")); came != c.came {
				t.Errorf("%s: the source has come: %t", c.about, came)
			}
			r.Stop()
		})
	}
}

// A content is read once for all races of a worker, and never if it was local.
func TestMentionsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, order := levels(3, 4)
		l := newLibrary(t, files)
		limits := NewLimits(LimitsOptions{})
		for range 3 {
			r := l.start(t, Spec{Limits: limits}, "main.cc")
			l.run(t, r, order...)
			r.Stop()
			for _, path := range order {
				l.local[l.at(t, l.root, path)] = false
			}
		}
		for d, times := range l.scanned {
			if times > 1 {
				t.Errorf("%q was read %d times", l.contents[d], times)
			}
		}
		for _, path := range order {
			l.local[l.at(t, l.root, path)] = true
		}
		clear(l.scanned)
		r := l.start(t, Spec{}, "main.cc")
		l.run(t, r, order...)
		if r.Stop(); len(l.scanned) > 0 {
			t.Errorf("%d local files were read", len(l.scanned))
		}
		last := order[len(order)-1]
		l.local[l.at(t, l.root, last)] = false
		r = l.start(t, Spec{}, "main.cc", order[1])
		if r.Stop(); l.has(l.at(t, l.root, last)) {
			t.Error("a file came of which nothing was read that mentions it")
		}
		l.local[l.at(t, l.root, order[1])] = false
		r = l.start(t, Spec{}, "main.cc", order[1])
		if r.Stop(); !l.has(l.at(t, l.root, last)) {
			t.Error("a file did not come that local files mention")
		}
	})
}

// Mentions that lead around, nowhere, or to anything but a file hinder nobody.
func TestMentionsOfHostileTrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := strings.Repeat("#include <nowhere.h>\n#include \"../../../a.c\"\n#include \"b.c\"\n#include \"d\"\n#include \"\"\n", 1000)
		l := newLibrary(t, map[string]string{"a.c": many, "b.c": "#include \"a.c\"\n#include \"b.c\"\n", "d/e": "", "large.c": strings.Repeat("#include \"b.c\"\n", 50_000)})
		delete(l.remote, l.at(t, l.root, "d"))
		r := l.start(t, Spec{}, "../x", "/etc/passwd", "d/e", "a.c", "large.c", strings.Repeat("a/", 5000))
		l.run(t, r, "a.c", "b.c", "large.c")
		if trips := l.run(t, r, "a.c", "b.c"); trips > 0 {
			t.Errorf("waited %d trips for local files", trips)
		}
		r.Stop()
	})
}

// Directories for mentions that come one by one take few calls: other races need calls, too.
func TestMentionsShareTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := map[string]string{}
		for i := range 200 {
			files[fmt.Sprintf("f%d.c", i)] = fmt.Sprintf("#include \"d%d/x%d.h\"\n", i, i)
			files[fmt.Sprintf("d%d/x%d.h", i, i)] = "int x;\n"
		}
		l := newLibrary(t, files)
		l.local[l.root] = true
		r := Start(t.Context(), Spec{
			Root: l.root, Source: l, Contents: l.content, Limits: NewLimits(LimitsOptions{DirectoryCalls: 1000}),
		})
		for i := range 200 {
			path := fmt.Sprintf("f%d.c", i)
			d := l.at(t, l.root, path)
			l.mu.Lock()
			l.local[d] = true
			l.mu.Unlock()
			r.Opened(path, tree.File)
			r.Came(d, cas.Absent)
			synctest.Wait()
		}
		time.Sleep(20 * roundTrip)
		synctest.Wait()
		r.Stop()
		if l.maxDirectories > 2*maxDirectoryCalls {
			t.Errorf("%d calls for directories at a time", l.maxDirectories)
		}
		if d := l.at(t, l.root, "d199/x199.h"); !l.has(d) {
			t.Error("a mentioned file did not come")
		}
	})
}
