package vfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// stuckSource is a probeSource whose directory "dir" never comes.
type stuckSource struct {
	*probeSource
	asked func() // by each call that waits for it
}

func (s stuckSource) Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error) {
	if d == s.root {
		return s.probeSource.Directory(ctx, d)
	}
	s.asked()
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s stuckSource) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	dir, ok := s.probeSource.LocalDirectory(d)
	return dir, ok && d == s.root
}

// serverMain serves two roots until it is killed.
func serverMain() {
	fail := func(err error) {
		if err != nil {
			fmt.Println(`"` + strings.ReplaceAll(err.Error(), `"`, `'`) + `"`)
			os.Exit(1)
		}
	}
	f, err := Open(Options{MountDir: os.Args[1], UpperDir: os.Args[2]})
	fail(err)
	src, err := newProbeSource(os.TempDir())
	fail(err)
	stuck := stuckSource{src, func() { fmt.Println(`"asked"`) }}
	for _, name := range []string{"one", "two"} {
		r, err := f.NewRoot(context.Background(), RootSpec{Name: name, Digest: src.root, Source: stuck})
		fail(err)
		fail(os.WriteFile(filepath.Join(r.Path(), "written"), []byte("x"), 0o600))
		fail(os.Mkdir(filepath.Join(r.Path(), "sub"), 0o700))
	}
	fmt.Println(`"ready"`)
	select {}
}

func TestOpenAfterKill(t *testing.T) {
	openFS(t, Options{}) // skips where there is no FUSE
	dir := t.TempDir()
	o := Options{MountDir: filepath.Join(dir, "mount points"), UpperDir: filepath.Join(dir, "upper")}
	open, inside, stuck := startChild(t, "helper"), startChild(t, "helper"), startChild(t, "helper")
	server := startChild(t, "server", o.MountDir, o.UpperDir)
	if got := server.answer(); got != "ready" {
		t.Fatal(got)
	}
	one := filepath.Join(o.MountDir, pointsName, "one", "root")
	if got := open.do("hold", filepath.Join(one, "file")); got != "ok" {
		t.Fatal(got)
	}
	if got := inside.do("chdir", filepath.Join(one, "sub")); got != "ok" {
		t.Fatal(got)
	}
	stuck.ask("read", filepath.Join(o.MountDir, pointsName, "two", "root", "dir", "x"))
	if got := server.answer(); got != "asked" {
		t.Fatal(got)
	}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the folders of a living process were opened: %v", err)
	}
	if err := server.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.cmd.Wait()
	if left, _ := mounts.Below(o.MountDir); len(left) != 5 {
		t.Errorf("the killed process left %q, want 5 mounts", left)
	}
	if got := stuck.answer(); !strings.HasPrefix(got, "error: ") {
		t.Errorf("an access without a server succeeded: %q", got)
	}

	f := openFS(t, o)
	f.trash.Wait()
	for _, d := range []string{f.points.dir, f.trash.Dir()} {
		if left, err := os.ReadDir(d); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", d, left, err)
		}
	}
	src := vfstest.NewSource(t)
	r := openRoot(t, f, RootSpec{Name: "one", Digest: src.Tree(t, "new"), Source: src})
	if got := vfstest.Walk(t, r.Path()); !slices.Equal(got, []string{".", "new"}) {
		t.Errorf("the new root has %q", got)
	}
}

func TestStrangersAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	mounts, upper := filepath.Join(dir, "mounts"), filepath.Join(dir, "upper")
	for _, p := range []string{
		"mounts/mine/keep", "upper/mine/keep", "upper/links/lower/a/x", "upper/.links/3/7", "upper/.trash/1/x",
		"upper/stale/upper/x", "upper/stale/work/work/y", "mounts/roots/stale/root/", "mounts/roots/stale/lower/",
		"mounts/roots/mine/keep",
	} {
		p = filepath.Join(dir, p) + p[len(p)-1:]
		if strings.HasSuffix(p, "/") {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p[:len(p)-1], nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{mounts, upper} {
		if err := os.WriteFile(filepath.Join(p, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(Options{MountDir: mounts, UpperDir: upper})
	if errors.Is(err, ErrUnavailable) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	src := vfstest.NewSource(t)
	for _, name := range []string{"mine", "file"} { // the names are taken
		if _, err := f.NewRoot(t.Context(), RootSpec{Name: name, Digest: src.Tree(t, "x"), Source: src}); err == nil {
			t.Errorf("root %s was mounted over what was there", name)
		}
	}
	if err := os.Remove(filepath.Join(mounts, "file")); err != nil { // taken by the layer alone
		t.Fatal(err)
	}
	if _, err := f.NewRoot(t.Context(), RootSpec{Name: "file", Digest: src.Tree(t, "x"), Source: src}); err == nil {
		t.Error("a root was given a layer that was there")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	want := []string{
		".", "mounts", "mounts/mine", "mounts/mine/keep", "mounts/roots", "mounts/roots/mine", "mounts/roots/mine/keep", "upper", "upper/file", "upper/mine", "upper/mine/keep",
	}
	if got := vfstest.Walk(t, dir); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}
