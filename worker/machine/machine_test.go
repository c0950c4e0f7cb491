package machine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shownFiles makes a folder with a tool, a hidden folder next to it, and a link to the first. Later
// changes have later times.
func shownFiles(t *testing.T) (s visibleFiles, dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	for name, text := range map[string]string{"show/bin/gcc": "gcc 12", "show/lib/a": "a", "show/hidden/x": "x", "outside/y": "y"} {
		name = filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(name), 0o755))
		check(t, os.WriteFile(name, []byte(text), 0o644))
	}
	check(t, os.Symlink("gcc", filepath.Join(dir, "show/bin/cc")))
	check(t, os.Symlink("show/lib", filepath.Join(dir, "lib")))
	check(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	time.Sleep(2 * settled) // the kernel's clock of changes is coarse
	return visibleFiles{
		shown:  []string{filepath.Join(dir, "lib"), filepath.Join(dir, "show"), filepath.Join(dir, "none"), filepath.Join(dir, "dangling")},
		hidden: []string{filepath.Join(dir, "show/hidden")},
	}, dir
}

// keepTimes calls f and gives a path the modification time that it had before.
func keepTimes(path string, f func() error) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return errors.Join(f(), os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// TestDigest changes one thing after the other: the digest tells apart what commands can, and a
// glance what may have changed.
func TestDigest(t *testing.T) {
	for name, c := range map[string]struct {
		change          func(dir string) error
		digest, glances bool // differ
	}{
		"nothing": {func(string) error { return nil }, false, false},
		"content of the same size and time": {func(dir string) error {
			tool := filepath.Join(dir, "show/bin/gcc")
			return keepTimes(tool, func() error { return os.WriteFile(tool, []byte("gcc 13"), 0) })
		}, true, true},
		"time": {func(dir string) error {
			return os.Chtimes(filepath.Join(dir, "show/lib/a"), time.Unix(1, 0), time.Unix(1, 0))
		}, true, true},
		"mode": {func(dir string) error { return os.Chmod(filepath.Join(dir, "show/lib/a"), 0o755) }, true, true},
		"mode, and back": {func(dir string) error {
			a := filepath.Join(dir, "show/lib/a")
			return errors.Join(os.Chmod(a, 0o755), os.Chmod(a, 0o644))
		}, false, true},
		"target": {func(dir string) error {
			bin := filepath.Join(dir, "show/bin")
			return keepTimes(bin, func() error {
				return errors.Join(os.Remove(bin+"/cc"), os.Symlink("gc_", bin+"/cc"))
			})
		}, true, true},
		"new file": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "show/lib/b"), nil, 0o644) }, true, true},
		"renamed file": {func(dir string) error {
			lib := filepath.Join(dir, "show/lib")
			return keepTimes(lib, func() error { return os.Rename(lib+"/a", lib+"/b") })
		}, true, true},
		"removed file": {func(dir string) error { return os.Remove(filepath.Join(dir, "show/lib/a")) }, true, true},
		"where a name leads": {func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "lib")), os.Symlink("outside", filepath.Join(dir, "lib")))
		}, true, true},
		"what was not there": {func(dir string) error { return os.Mkdir(filepath.Join(dir, "none"), 0o755) }, true, true},
		"what is hidden":     {func(dir string) error { return os.WriteFile(filepath.Join(dir, "show/hidden/x"), []byte("z"), 0) }, false, false},
		"what is not shown":  {func(dir string) error { return os.WriteFile(filepath.Join(dir, "outside/y"), []byte("z"), 0) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := shownFiles(t)
			look := func() (string, glance) {
				d, err := s.digest(t.Context())
				check(t, err)
				g, err := s.glance(t.Context())
				check(t, err)
				return d, g
			}
			digest, seen := look()
			check(t, c.change(dir))
			after, now := look()
			if (after != digest) != c.digest || (now != seen) != c.glances {
				t.Errorf("digest differs %t, want %t; a glance %t, want %t", after != digest, c.digest, now != seen, c.glances)
			}
		})
	}
}

// TestEachOnce visits a file with several names once, and no hidden file.
func TestEachOnce(t *testing.T) {
	s, dir := shownFiles(t)
	var visited []string
	check(t, s.walk(t.Context(), func(e entry) error {
		rel, err := filepath.Rel(dir, e.path)
		visited = append(visited, rel)
		return err
	}))
	slices.Sort(visited)
	want := "dangling lib show show/bin show/bin/cc show/bin/gcc show/lib show/lib/a"
	if got := strings.Join(visited, " "); got != want {
		t.Errorf("visited %s, want %s", got, want)
	}
}

// begin returns a machine that has been examined.
func begin(t *testing.T, s visibleFiles, facts ...string) (*Examined, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	e, err := Examine(Options{Shown: s.shown, Hidden: s.hidden, Facts: facts, Logger: zap.New(core)})
	check(t, err)
	t.Cleanup(e.Close)
	e.read()
	return e, logs
}

// TestMachinesThatAreAlike have the same name, and no others.
func TestMachinesThatAreAlike(t *testing.T) {
	s, dir := shownFiles(t)
	name := func(s visibleFiles, facts ...string) string {
		e, logs := begin(t, s, facts...)
		name, ok := e.As(t.Context(), time.Now())
		if !ok || name == "" {
			t.Fatalf("it has no name: %v", logs.All())
		}
		return name
	}
	first := name(s, "kernel 6.1", "2 CPUs")
	if again := name(s, "kernel 6.1", "2 CPUs"); again != first {
		t.Errorf("%s and %s are the same machine", first, again)
	}
	for what, other := range map[string]string{
		"other facts":          name(s, "kernel 6.12", "2 CPUs"),
		"facts that run on":    name(s, "kernel 6.12 CPUs"),
		"what is hidden shows": name(visibleFiles{shown: s.shown}, "kernel 6.1", "2 CPUs"),
	} {
		if other == first {
			t.Errorf("%s: it has the same name", what)
		}
	}
	named := func(text string, facts ...string) string {
		n, ok := NewNamed(text, facts).As(t.Context(), time.Now())
		if !ok {
			t.Error("a named machine has no name")
		}
		return n
	}
	image := named("image 1", "a")
	if image != named("image 1", "a") || image == named("image 2", "a") ||
		image == named("image 1", "b") || named("image", "1") == named("image", "1", "") {
		t.Error("names of machines do not tell them apart as their operator does")
	}
	check(t, os.WriteFile(filepath.Join(dir, "show/lib/a"), []byte("b"), 0o644))
	time.Sleep(2 * settled)
	if name(s, "kernel 6.1", "2 CPUs") == first {
		t.Error("with another file it has the same name")
	}
}

// TestMachineThatChanges: after a change the machine has no name any more, even if the change is
// undone.
func TestMachineThatChanges(t *testing.T) {
	s, dir := shownFiles(t)
	e, logs := begin(t, s)
	e.took = 0 // it need not rest
	before := time.Now()
	if _, ok := e.As(t.Context(), before); !ok {
		t.Fatal("it has no name")
	}
	tool := filepath.Join(dir, "show/bin/gcc")
	check(t, keepTimes(tool, func() error { return os.WriteFile(tool, []byte("gcc 13"), 0) }))
	if _, ok := e.As(t.Context(), before); !ok {
		t.Error("of the time before the change it has no name")
	}
	if name, ok := e.As(t.Context(), time.Now()); ok || name != "" {
		t.Errorf("it has the name %q", name)
	}
	check(t, keepTimes(tool, func() error { return os.WriteFile(tool, []byte("gcc 12"), 0) }))
	if name, ok := e.As(t.Context(), before); ok || name != "" {
		t.Errorf("later it has the name %q", name)
	}
	if n := logs.FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
		t.Errorf("%d warnings, want one: %v", n, logs.All())
	}
}

// TestNextLookIsFar: a caller does not wait for a check that would begin after its deadline.
func TestNextLookIsFar(t *testing.T) {
	s, _ := shownFiles(t)
	e, _ := begin(t, s)
	e.mu.Lock()
	e.took = time.Hour
	e.mu.Unlock()
	soon, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for range 2 {
		if name, ok := e.As(soon, time.Now()); ok {
			t.Errorf("it has the name %q before anybody has looked again", name)
		}
	}
	if name, ok := e.As(soon, time.Time{}); !ok {
		t.Errorf("of the time before it has the name %q", name)
	}
}

// TestMachineThatIsNotRead: a machine is like no other if the commands' view was prepared before a
// file changed, or if its files cannot be read.
func TestMachineThatIsNotRead(t *testing.T) {
	s, dir := shownFiles(t)
	core, logs := observer.New(zap.InfoLevel)
	for name, spoil := range map[string]func() error{
		"changed since the start": func() error { return os.Chmod(filepath.Join(dir, "show/lib/a"), 0o600) },
		"closed":                  func() error { return nil },
	} {
		e, err := Examine(Options{Shown: s.shown, Hidden: s.hidden, Logger: zap.New(core)})
		check(t, err)
		if _, ok := e.As(t.Context(), time.Now()); ok {
			t.Errorf("%s: it has a name that nobody has made", name)
		}
		check(t, spoil())
		if name == "closed" {
			e.Close()
		}
		e.Begin()
		e.ended.Wait()
		if got, ok := e.As(t.Context(), time.Time{}); ok {
			t.Errorf("%s: it has the name %s", name, got)
		}
		e.Close()
	}
	if _, err := (visibleFiles{shown: []string{filepath.Join(dir, "show/lib/a/below")}}).digest(t.Context()); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is none: %v", err)
	}
	if logs.Len() == 0 {
		t.Error("nobody is told why nothing is shared")
	}
}

// TestFacts wants what processors have in common once, and how many there are.
func TestFacts(t *testing.T) {
	one := "processor\t: %\nmodel name\t: A\ncpu MHz\t\t: 1.%\nflags\t\t: fpu avx\n\n"
	text := strings.ReplaceAll(one, "%", "0") + strings.ReplaceAll(one, "%", "1")
	want := []string{"processor flags: fpu avx", "processor model name: A", "processors 2"}
	if got := processors(text); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	facts, err := Facts(t.TempDir())
	check(t, err)
	again, err := Facts(t.TempDir())
	check(t, err)
	if len(facts) < 4 || !slices.Equal(facts, again) {
		t.Errorf("%q, then %q", facts, again)
	}
	dir := t.TempDir()
	for _, node := range []string{"node0", "node1"} {
		check(t, os.MkdirAll(filepath.Join(dir, node, "cpulist"), 0o755)) // a folder says nothing
		check(t, os.WriteFile(filepath.Join(dir, node, "distance"), []byte("10\n"), 0o644))
		check(t, os.Chmod(filepath.Join(dir, node, "distance"), 0o644)) // independent of the umask
	}
	want = []string{dir + "/node0/distance 10", dir + "/node1/distance 10"}
	if got := texts([]string{dir + "/node*/cpulist", dir + "/node*/distance", dir + "/none"}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOwn: a machine keeps its own name over restarts. Machines to which an operator gives the same
// name count as the same.
func TestOwn(t *testing.T) {
	base := own("id", "", []string{"kernel 6"})
	for name, c := range map[string]struct {
		got  string
		same bool
	}{
		"started again":         {own("id", "", []string{"kernel 6"}), true},
		"another machine":       {own("other", "", []string{"kernel 6"}), false},
		"another kernel":        {own("id", "", []string{"kernel 7"}), false},
		"named":                 {own("id", "image 1", []string{"kernel 6"}), false},
		"what could be its id":  {own("", "", []string{"id", "kernel 6"}), false},
		"its own name, by file": {Own("", []string{"kernel 6"}), false},
	} {
		if (c.got == base) != c.same {
			t.Errorf("%s: it has the same name: %t", name, c.got == base)
		}
	}
	if own("id", "image 1", nil) != own("other", "image 1", nil) {
		t.Error("machines that the operator calls alike have different names")
	}
	if once, again := Own("", nil), Own("", nil); once != again {
		t.Error("it has another name the next time")
	}
}

// TestTexts: facts include only files that commands can read and that do not change.
func TestTexts(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"core_id": 0o444, "ppin": 0o400} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte("1\n"), mode))
		check(t, os.Chmod(filepath.Join(dir, name), mode)) // independent of the umask
	}
	if got := texts([]string{dir + "/*"}); !slices.Equal(got, []string{filepath.Join(dir, "core_id") + " 1"}) {
		t.Errorf("facts are %q", got)
	}
	for name, want := range map[string]bool{
		"cpuinfo_max_freq": true, "cpuinfo_min_freq": true, "cpuinfo_cur_freq": false, "cpuinfo_avg_freq": false, "scaling_cur_freq": false,
	} {
		path := "/sys/devices/system/cpu/cpu0/cpufreq/" + name
		got := slices.ContainsFunc(inSys, func(pattern string) bool {
			is, err := filepath.Match(pattern, path)
			return is && err == nil
		})
		if got != want {
			t.Errorf("%s is a fact: %t", name, got)
		}
	}
}
