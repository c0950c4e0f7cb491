package vfs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// released checks that nothing of a root is left.
func released(t *testing.T, r *Root) {
	t.Helper()
	if left, err := mounts.Below(r.fs.points.dir); err != nil || len(left) > 0 {
		t.Errorf("mounts left: %q, %v", left, err)
	}
	for _, p := range []string{filepath.Dir(r.Path()), r.writable.path} {
		if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", p, err)
		}
	}
	waitUntil(t, "the goroutines of the root", func() bool {
		buf := make([]byte, 1<<20)
		stacks := string(buf[:runtime.Stack(buf, true)])
		return !strings.Contains(stacks, "fuse.(*Server)") && !strings.Contains(stacks, "fuse.await")
	})
	r.fs.trash.Wait()
	if n := openDescriptors(t, r.fs.upperDir) + openDescriptors(t, "/dev/fuse"); n > 1 { // one is the lock
		t.Errorf("%d descriptors are left", n)
	}
}

func openDescriptors(t *testing.T, prefix string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if p, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(p, prefix) {
			n++
		}
	}
	return n
}

func TestCloseReleases(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, h *helper, r *Root){
		"unused": func(*testing.T, *helper, *Root) {},
		"used": func(t *testing.T, h *helper, r *Root) {
			if got := h.do("read", filepath.Join(r.Path(), "a/file")); got != "content of file" {
				t.Error(got)
			}
		},
		"file open": func(t *testing.T, h *helper, r *Root) {
			if got := h.do("hold", filepath.Join(r.Path(), "a/file")); got != "ok" {
				t.Error(got)
			}
		},
		"directory open": func(t *testing.T, h *helper, r *Root) {
			if got := h.do("hold", filepath.Join(r.Path(), "a")); got != "ok" {
				t.Error(got)
			}
		},
		"process inside": func(t *testing.T, h *helper, r *Root) {
			if got := h.do("chdir", filepath.Join(r.Path(), "a")); got != "ok" {
				t.Error(got)
			}
		},
		"process below": func(t *testing.T, h *helper, r *Root) {
			if got := h.do("chdir", filepath.Join(fusePoint(r.points.path), "a")); got != "ok" {
				t.Error(got)
			}
		},
		"unmounted by the action": func(t *testing.T, _ *helper, r *Root) {
			if err := mounts.Detach(r.fs.points.dir); err != nil {
				t.Error(err)
			}
		},
		"unmounted by the action, process inside": func(t *testing.T, h *helper, r *Root) {
			if got := h.do("chdir", filepath.Join(r.Path(), "a")); got != "ok" {
				t.Error(got)
			}
			for _, p := range []string{r.Path(), fusePoint(r.points.path)} {
				if err := unix.Unmount(p, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, f *FS) {
				h := startChild(t, "helper")
				src := vfstest.NewSource(t)
				r := openRoot(t, f, RootSpec{Digest: src.Tree(t, "a/file"), Source: src})
				use(t, h, r)
				for range 2 {
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				}
				released(t, r)
			})
		})
	}
}

func TestCloseCancelsBlockedAccesses(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		src.InCall = make(chan digest.Digest, 10)
		root := src.Tree(t, "a/file", "b/file2")
		src.Gate(src.Find(t, root, "a"))
		src.Gate(src.Find(t, root, "b/file2"))
		helpers := []*helper{startChild(t, "helper"), startChild(t, "helper"), startChild(t, "helper")}
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		helpers[0].ask("read", filepath.Join(r.Path(), "a/file"))
		helpers[1].ask("read", filepath.Join(r.Path(), "b/file2"))
		helpers[2].ask("stat", filepath.Join(r.Path(), "a/no"))
		<-src.InCall
		<-src.InCall
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		for i, h := range helpers {
			if got := h.answer(); !strings.HasPrefix(got, "error: ") {
				t.Errorf("access %d succeeded: %q", i, got)
			}
		}
		released(t, r)
		if err := r.Err(); err != nil {
			t.Errorf("closing left an error: %v", err)
		}
	})
}

// TestKilledWhileWaiting: a process that waits for the Source ends when it is killed, even if the
// root is not closed; otherwise it could never be waited for.
func TestKilledWhileWaiting(t *testing.T) {
	for name, end := range map[string]func(h *helper) error{
		"SIGKILL": func(h *helper) error { return h.cmd.Process.Kill() },
		"harmless signals first": func(h *helper) error {
			for range 3 {
				if err := h.disturb(); err != nil {
					return err
				}
			}
			return h.cmd.Process.Kill()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFS(t, Options{})
			src := vfstest.NewSource(t)
			src.InCall = make(chan digest.Digest, 10)
			root := src.Tree(t, "file", "other")
			open := src.Gate(src.Find(t, root, "file"))
			h, h2 := startChild(t, "helper"), startChild(t, "helper")
			r := openRoot(t, f, RootSpec{Digest: root, Source: src})
			h.ask("read", filepath.Join(r.Path(), "file"))
			h2.ask("read", filepath.Join(r.Path(), "file"))
			<-src.InCall
			<-src.InCall
			if err := end(h); err != nil {
				t.Fatal(err)
			}
			_ = h.cmd.Wait() // would never return
			open()
			if got := h2.answer(); got != "content of file" {
				t.Errorf("the other process reads %q", got)
			}
			if err := r.Err(); err != nil {
				t.Errorf("a killed process left an error: %v", err)
			}
		})
	}
}

func TestSignalsDoNotDisturb(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	src.InCall = make(chan digest.Digest, 10)
	root := src.Tree(t, "file")
	open := src.Gate(src.Find(t, root, "file"))
	h := startChild(t, "helper")
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	h.ask("read", filepath.Join(r.Path(), "file"))
	<-src.InCall
	if err := h.disturb(); err != nil {
		t.Fatal(err)
	}
	open()
	if got := h.answer(); got != "content of file" {
		t.Errorf("after a signal: %q", got)
	}
	if n := src.Calls(src.Find(t, root, "file")); n != 1 {
		t.Errorf("the blob was asked for %d times", n)
	}
}

func TestCloseOfFileSystem(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "file")
	r, err := f.NewRoot(t.Context(), RootSpec{Name: "left", Digest: root, Source: src})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	released(t, r)
	if _, err := f.NewRoot(t.Context(), RootSpec{Name: "late", Digest: root, Source: src}); !errors.Is(err, ErrClosed) {
		t.Errorf("new root after close: %v", err)
	}
}

func TestNewRootRefuses(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "file")
	openRoot(t, f, RootSpec{Name: "taken", Digest: root, Source: src})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		spec RootSpec
	}{
		"no name":       {t.Context(), RootSpec{Digest: root, Source: src}},
		"path":          {t.Context(), RootSpec{Name: "../x", Digest: root, Source: src}},
		"parent":        {t.Context(), RootSpec{Name: "..", Digest: root, Source: src}},
		"too long":      {t.Context(), RootSpec{Name: strings.Repeat("x", 256), Digest: root, Source: src}},
		"name in use":   {t.Context(), RootSpec{Name: "taken", Digest: root, Source: src}},
		"no source":     {t.Context(), RootSpec{Name: "x", Digest: root}},
		"no digest":     {t.Context(), RootSpec{Name: "x", Source: src}},
		"ended context": {ended, RootSpec{Name: "x", Digest: root, Source: src}},
	} {
		if r, err := f.NewRoot(c.ctx, c.spec); err == nil {
			t.Errorf("%s: no error", name)
			_ = r.Close()
		}
	}
	again := openRoot(t, f, RootSpec{Name: "x", Digest: root, Source: src})
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	openRoot(t, f, RootSpec{Name: "x", Digest: root, Source: src}) // a name is free after Close
}

func TestManyRootsAtOnce(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "file")
	done := make(chan error)
	const n = 16
	for i := range n {
		go func() {
			for j := range 4 {
				r, err := f.NewRoot(t.Context(), RootSpec{
					Name: string(rune('a'+i)) + string(rune('0'+j)), Digest: root, Source: src,
				})
				if err == nil {
					_, err = os.ReadFile(filepath.Join(r.Path(), "file"))
					err = errors.Join(err, r.Close())
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
