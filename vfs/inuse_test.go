package vfs

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// unshareMounts gives the thread a copy of all mounts, for as long as it lives.
func unshareMounts() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

// TestCloseInUse: whatever a surviving process holds of a root, Close returns and reports it where
// it can, and the next root can have the same name.
func TestCloseInUse(t *testing.T) {
	type use struct {
		ops  [][]string // of the helper; the last argument is a path in the root
		told bool       // the kernel says that the root is in use
	}
	for name, u := range map[string]use{
		"nothing":                 {nil, false},
		"working directory":       {[][]string{{"chdir", "a"}}, true},
		"open input":              {[][]string{{"hold", "a/file"}}, true},
		"open folder":             {[][]string{{"hold", "a"}}, true},
		"mapped input":            {[][]string{{"holdmap", "a/file"}}, false}, // the blob itself is mapped
		"another mount namespace": {[][]string{{"unshare", "."}, {"read", "a/file"}}, false},
		"inside another mount namespace": {
			[][]string{{"unshare", "."}, {"chdir", "a"}, {"hold", "a/file"}}, false,
		},
		"clone of the mount": {[][]string{{"clone", "."}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			f := openFS(t, Options{Logger: zap.New(core)})
			helpers := []*helper{startChild(t, "helper"), startChild(t, "helper")}
			src := vfstest.NewSource(t)
			d := src.Tree(t, "a/file", "other")
			for _, h := range helpers { // the second root, while the first is still held
				r := openRoot(t, f, RootSpec{Name: "same", Digest: d, Source: src})
				for _, op := range u.ops {
					if got := h.do(op[0], filepath.Join(r.Path(), op[1])); got != "ok" && got != "content of file" {
						t.Fatalf("%v: %s", op, got)
					}
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				released(t, r)
				said := logs.FilterMessageSnippet("processes still use an input root").Len() > 0
				logs.TakeAll()
				if said != u.told {
					t.Errorf("said to be in use: %t, want %t", said, u.told)
				}
			}
		})
	}
}

// TestCloseOfFileSystemWhileSourceHangs: neither Close nor processes that wait for the Source hang.
func TestCloseOfFileSystemWhileSourceHangs(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	src.InCall = make(chan digest.Digest, 10)
	d := src.Tree(t, "a/file", "b")
	src.Gate(src.Find(t, d, "a"))
	src.Gate(src.Find(t, d, "b"))
	list, open := startChild(t, "helper"), startChild(t, "helper")
	r := openRoot(t, f, RootSpec{Digest: d, Source: src})
	list.ask("walk", filepath.Join(r.Path(), "a"))
	open.ask("read", filepath.Join(r.Path(), "b"))
	<-src.InCall
	<-src.InCall
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	released(t, r)
	for _, h := range []*helper{list, open} {
		if got := h.answer(); len(got) < 6 || got[:6] != "error:" {
			t.Errorf("an access without an end succeeded: %q", got)
		}
	}
	if left, err := os.ReadDir(f.mountDir); len(left) > 0 || err != nil {
		t.Errorf("the folder is not free: %v, %v", left, err)
	}
}
