package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestLivingProcessKeepsItsLock: only the locks of dying processes are waited for.
func TestLivingProcessKeepsItsLock(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	r := openRoot(t, f, RootSpec{Digest: src.Tree(t, "file"), Source: src})
	lock, err := os.Open(f.mountDir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if mounts.Dying(os.Getpid()) {
		t.Error("this process is believed to be dying")
	}
	if err := mounts.Lock(lock, f.mountDir); err == nil {
		t.Error("a lock was taken twice")
	}
	if _, err := os.ReadFile(filepath.Join(r.Path(), "file")); err != nil {
		t.Errorf("a root of a living process: %v", err)
	}
}

// TestOthersCannotLock: a process that can open a folder could lock it, and keep its owner from
// starting again. Everyone may pass through the folder.
func TestOthersCannotLock(t *testing.T) {
	o := Options{MountDir: t.TempDir(), UpperDir: t.TempDir()}
	for _, dir := range []string{o.MountDir, o.UpperDir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := openFS(t, o)
	for _, dir := range []string{f.mountDir, f.upperDir} {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o711 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}
