package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/vfs"
)

// TestRotBehindAnImageThatIsEvicted: a damaged blob, which the kernel reads without telling the
// worker, is evicted before it is checked. In most attempts the worker learns only afterwards that
// it was opened; otherwise it checks in time.
func TestRotBehindAnImageThatIsEvicted(t *testing.T) {
	const tries = 5
	dir := t.TempDir()
	fillWithRot(t, filepath.Join(dir, "local"), tries)
	f, in := newImageFarm(t, farmOptions{disk: dir}, "ls -R sdk > /dev/null")
	var free []func()
	for i := range tries {
		unpin, there := f.local.Pin(digestOfBytes(library(i)))
		if !there {
			t.Fatalf("%q is not in the store", library(i))
		}
		free = append(free, unpin)
	}
	for i := range tries {
		free[i]()
		gate := t.TempDir()
		script := fmt.Sprintf("cat sdk/lib%d/file > out; [ -e %[2]s/read ] || { : > %[2]s/read; "+
			"until [ -e %[2]s/go ]; do sleep 0.01; done; }", i, gate)
		j := f.start(t, spec{inputs: in(fmt.Sprint("own ", i)), shell: script, paths: []string{"out"}})
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Join(gate, "read")); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the command does not read")
			}
		}
		f.local.Evict(1 << 20)
		check(t, os.WriteFile(filepath.Join(gate, "go"), nil, 0o600))
		f.assertOutput(t, j, j.result(t), library(i))
		if got := f.damagedRuns(t); got != i+1 {
			t.Errorf("%d runs were damaged, want %d", got, i+1)
		}
	}
}

func library(i int) string { return fmt.Sprintf("library %d", i) }

// fillWithRot makes a store with that many damaged libraries and without notes of verifications.
func fillWithRot(t *testing.T, dir string, count int) {
	t.Helper()
	store, err := disk.Open(dir, disk.Options{MaxBytes: 1 << 20})
	check(t, err)
	for i := range count {
		check(t, store.PutBytes(t.Context(), digestOfBytes(library(i)), []byte(library(i))))
	}
	check(t, errors.Join(store.Close(), os.Remove(filepath.Join(dir, "verified"))))
	for i := range count {
		flip(t, filepath.Join(dir, disk.BlobPath(digestOfBytes(library(i)))))
	}
}

// newImageFarm is a rottingFarm with a metadata image of a tree, and the tree with a file more. The
// image is made for actions that run the script.
func newImageFarm(t *testing.T, few farmOptions, script string) (f *rottingFarm, in func(own string) tree) {
	t.Helper()
	f = newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, few)
	in = func(own string) tree {
		files := tree{"own": own}
		for i := range 300 {
			files[fmt.Sprintf("sdk/lib%d/file", i)] = library(i)
		}
		return files
	}
	for i := range 2 {
		assertOK(t, f.run(t, spec{inputs: in(fmt.Sprint(i)), shell: script}))
	}
	f.awaitImage(t)
	return f, in
}
