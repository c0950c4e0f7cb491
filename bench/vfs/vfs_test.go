package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/bench/benchtest"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/vfs"
)

// TestMain lets the test binary serve as launcher and as child, as the program does.
func TestMain(m *testing.M) {
	runner.MainIfLauncher()
	if len(os.Args) > 1 && os.Args[1] == "child" {
		cmd := NewChildCommand()
		cmd.SetArgs(os.Args[2:])
		if err := cmd.Execute(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	launchertest.Main(m)
}

// newTinyBench has inputs of a few files instead of an SDK.
func newTinyBench(t *testing.T) *vfsBench {
	t.Helper()
	dir := benchtest.NewDir(t)
	s, err := openSite(t.Context(), dir)
	if err != nil && os.Getenv("CI") == "" && (errors.Is(err, vfs.ErrUnavailable) || os.Geteuid() != 0) {
		t.Skip(err)
	}
	benchtest.Check(t, err)
	t.Cleanup(func() { benchtest.Check(t, s.close()) })
	s.part = 100
	in := &inputs{dir: filepath.Join(dir, "plain"), small: filepath.Join(dir, "small")}
	net := filepath.Join(in.dir, "go", "src", "net")
	benchtest.Check(t, os.MkdirAll(net, 0o755))
	for i := range 10 {
		benchtest.Check(t, os.WriteFile(filepath.Join(net, fmt.Sprint(i)), []byte(strings.Repeat("content", i)), 0o644))
	}
	benchtest.Check(t, in.listSmall(filepath.Join(in.dir, "go")))
	benchtest.Check(t, in.writeBig(t.Context(), 1<<20))
	return &vfsBench{site: s, in: in, o: &report.Options{
		Runs: 1, Only: []string{"find", "find_first", "create_unlink", "seq_read_again", rowRootMS},
	}}
}

func TestRows(t *testing.T) {
	b := newTinyBench(t)
	rows, err := b.all(t.Context())
	benchtest.Check(t, err)
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
		if r.Value == nil || *r.Value <= 0 {
			t.Errorf("row %s has no value: %+v", r.Name, r)
		}
	}
	want := "seq_read_again create_unlink find root_ms find_first"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("rows %q, want %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(b.in.dir, "made")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("work left something in the plain folder: %v", err)
	}
}

// TestRootsAreNew checks that no two actions have the same root, but all have the same subtrees.
func TestRootsAreNew(t *testing.T) {
	b := newTinyBench(t)
	benchtest.Check(t, b.site.upload(t.Context(), b.in.dir))
	var listings []string
	for range 2 {
		r, err := b.site.root(t.Context(), b.site.roots, b.site.subtrees)
		benchtest.Check(t, err)
		listing, _, err := b.site.run(t.Context(), job{dir: r.Path(), args: []string{"ls"}})
		benchtest.Check(t, errors.Join(err, r.Close()))
		listings = append(listings, listing)
	}
	if listings[0] != "action-1\nbig\ngo\n" || listings[1] != "action-2\nbig\ngo\n" {
		t.Errorf("roots hold %q", listings)
	}
}

// TestFailedWork checks that a failing command gives an error with the reason, not a fast run.
func TestFailedWork(t *testing.T) {
	b := newTinyBench(t)
	b.in.small = filepath.Join(b.site.dir, "wrong")
	benchtest.Check(t, os.WriteFile(b.in.small, []byte("go/not-there\n"), 0o644))
	b.o.Only = []string{"open_small"}
	rows, err := b.all(t.Context())
	if err == nil || !strings.Contains(err.Error(), "not-there") {
		t.Errorf("error %v, want one that names the file", err)
	}
	if len(rows) != 0 {
		t.Errorf("rows %+v of work that failed", rows)
	}
}
