package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

func TestOpenNeedsFolders(t *testing.T) {
	for _, o := range []Options{{}, {MountDir: t.TempDir()}, {UpperDir: t.TempDir()}} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{MountDir: file, UpperDir: t.TempDir()}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file as mount folder: %v", err)
	}
}

func TestOpenWithOddPaths(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `a,b:c \d`+"\té")
	f := openFS(t, Options{MountDir: filepath.Join(dir, "m"), UpperDir: filepath.Join(dir, "u")})
	src := vfstest.NewSource(t)
	r := openRoot(t, f, RootSpec{Name: `x,y:z \w`, Digest: src.Tree(t, "file"), Source: src})
	if got, err := os.ReadFile(filepath.Join(r.Path(), "file")); err != nil || string(got) != "content of file" {
		t.Errorf("read: %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(r.Path(), "out"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if _, ok := r.Written("out"); !ok {
		t.Error("the upper folder is another one")
	}
}

func TestProbe(t *testing.T) {
	refused := &passthroughError{unix.ELOOP}
	denied := &mounts.Error{What: "fuse", Err: unix.EPERM}
	noOverlay := &mounts.Error{What: "overlay", Err: unix.ENODEV}
	deniedOverlay := &mounts.Error{What: "overlay", Err: unix.EPERM}
	many := &mounts.Error{What: "fuse", Err: unix.ENOSPC}
	manyOverlays := &mounts.Error{What: "overlay", Err: unix.ENOSPC}
	full := errors.New("disk full")
	no := errors.New("not tried")
	for name, c := range map[string]struct {
		method      Method
		passthrough bool
		// The results of the probes: FUSE with passthrough and without, links with an overlay and
		// without.
		with, without, over, bare error
		want                      error
		got                       string // the state afterwards
		warnings                  string
	}{
		"all there":           {Auto, true, nil, no, no, no, nil, "fuse passthrough overlay", ""},
		"zero is auto":        {"", true, nil, no, no, no, nil, "fuse passthrough overlay", ""},
		"not wanted":          {Auto, false, no, nil, no, no, nil, "fuse overlay", ""},
		"passthrough refused": {Auto, true, refused, nil, no, no, nil, "fuse overlay", "passthrough"},
		"no FUSE":             {Auto, true, denied, no, nil, no, nil, "hardlink overlay", "FUSE"},
		"neither, after all":  {Auto, true, refused, denied, nil, no, nil, "hardlink overlay", "passthrough, FUSE"},
		"no overlay":          {Auto, true, noOverlay, no, noOverlay, nil, nil, "hardlink", "FUSE, overlayfs"},
		"nothing at all":      {Auto, true, noOverlay, no, noOverlay, full, ErrUnavailable, "", ""},
		"too many mounts":     {Auto, true, many, no, no, no, ErrUnavailable, "", ""},
		"for links, too":      {HardLink, true, no, no, manyOverlays, no, ErrUnavailable, "", ""},
		"another fault":       {Auto, true, full, no, no, no, ErrUnavailable, "", ""},
		"FUSE or nothing":     {FUSE, true, denied, no, no, no, ErrUnavailable, "", ""},
		"FUSE, cached":        {FUSE, true, refused, nil, no, no, nil, "fuse overlay", "passthrough"},
		"links":               {HardLink, true, no, no, nil, no, nil, "hardlink overlay", ""},
		"links alone":         {HardLink, true, no, no, deniedOverlay, nil, nil, "hardlink", "overlayfs"},
		"links and a disk":    {HardLink, true, no, no, full, no, ErrUnavailable, "", ""},
	} {
		core, logs := observer.New(zapcore.WarnLevel)
		f := &FS{log: zap.New(core), upperDir: t.TempDir()}
		err := f.probe(Options{Method: c.method, DisablePassthrough: !c.passthrough}, func() error {
			switch {
			case f.means == fusePassthrough:
				return c.with
			case f.means.method() == FUSE:
				return c.without
			case f.means.overlay():
				return c.over
			}
			return c.bare
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
		got := f.means.method().String()
		if f.Passthrough() {
			got += " passthrough"
		}
		if f.means.overlay() {
			got += " overlay"
		}
		if err == nil && got != c.got {
			t.Errorf("%s: %s, want %s", name, got, c.got)
		}
		var said []string
		for _, e := range logs.All() {
			_, what, _ := strings.Cut(e.Message, "no ")
			what, _, _ = strings.Cut(what, " for input roots")
			said = append(said, strings.TrimPrefix(what, "kernel "))
			for _, field := range []string{"missing", "costs", "remedy"} {
				if s, _ := e.ContextMap()[field].(string); s == "" {
					t.Errorf("%s: the warning %q does not say: %s", name, e.Message, field)
				}
			}
		}
		if err == nil && strings.Join(said, ", ") != c.warnings {
			t.Errorf("%s: warned of %q, want %s", name, said, c.warnings)
		}
	}
}

// TestUpperOnOverlay: the writable layer of a container's root. Overlayfs
// refuses it, or allows it while the kernel refuses passthrough; both must be said.
func TestUpperOnOverlay(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	r := openRoot(t, f, RootSpec{Digest: src.Tree(t, "file"), Source: src})
	core, logs := observer.New(zapcore.WarnLevel)
	inner, err := Open(Options{
		MountDir: t.TempDir(), UpperDir: filepath.Join(r.Path(), "upper"), Logger: zap.New(core), Method: FUSE,
	})
	if err != nil {
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "ext4, xfs, btrfs or tmpfs") {
			t.Errorf("upper folder on overlayfs: %v", err)
		}
		return
	}
	defer func() { _ = inner.Close() }()
	if inner.Passthrough() || logs.FilterMessageSnippet("no kernel passthrough").Len() != 1 {
		t.Errorf("passthrough %t; logged %v", inner.Passthrough(), logs.All())
	}
}

// TestRefusedPassthrough: a blob on a file system that the kernel does not pass
// through to, found out only when it is opened.
func TestRefusedPassthrough(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	f := openFS(t, Options{Logger: zap.New(core)})
	needPassthrough(t, f)
	src := vfstest.NewSource(t)
	root := src.Tree(t, "file", "other")
	outer := openRoot(t, f, RootSpec{Name: "outer", Digest: root, Source: src})
	for d, p := range src.Blobs { // the blobs move onto an overlayfs
		to := filepath.Join(outer.Path(), d.Hash())
		if err := os.WriteFile(to, mustRead(t, p), 0o400); err != nil {
			t.Fatal(err)
		}
		src.Blobs[d] = to
	}
	r := openRoot(t, f, RootSpec{Name: "inner", Digest: root, Source: src})
	for range 2 {
		for _, p := range []string{"file", "other"} {
			if got := mustRead(t, filepath.Join(r.Path(), p)); string(got) != "content of "+p {
				t.Errorf("%s: %q", p, got)
			}
		}
	}
	said := logs.FilterMessageSnippet("refuses passthrough").All()
	if len(said) != 1 || !strings.Contains(fmt.Sprint(said[0].ContextMap()["remedy"]), "blobs on ext4") {
		t.Errorf("said %v", said)
	}
}

func mustRead(t *testing.T, p string) []byte {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		what string
		err  error
		want string
	}{
		{"fuse device", unix.ENOENT, "modprobe fuse"},
		{"fuse device", unix.EACCES, "--device /dev/fuse"},
		{"fuse device", unix.EPERM, "run as root"},
		{"fuse", unix.EPERM, "CAP_SYS_ADMIN"},
		{"fuse", unix.ENODEV, "modprobe fuse"},
		{"overlay", unix.EPERM, "CAP_SYS_ADMIN"},
		{"overlay", unix.ENODEV, "modprobe overlay"},
		{"overlay", unix.EINVAL, "ext4, xfs, btrfs or tmpfs"},
		{"overlay", fmt.Errorf("move: %w", unix.EXDEV), "extended attributes"},
	} {
		err := fmt.Errorf("mount input root: %w", &mounts.Error{What: c.what, Err: c.err})
		if got := advice(err); !strings.Contains(got, c.want) {
			t.Errorf("%s, %v: advice %q has no %q", c.what, c.err, got, c.want)
		}
	}
	if got := advice(errors.New("disk full")); got != "see the error" {
		t.Errorf("advice for something else: %q", got)
	}
}
