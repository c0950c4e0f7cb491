package vfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// openOn opens an FS whose writable layers are on a tmpfs with these options.
func openOn(t *testing.T, flags uintptr, options string) *FS {
	t.Helper()
	dir := t.TempDir()
	upper := filepath.Join(dir, "upper")
	if err := os.Mkdir(upper, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", upper, "tmpfs", flags, options); err != nil {
		lacks(t, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(upper, 0); err != nil {
			t.Error(err)
		}
	})
	return openFS(t, Options{CopyBytes: copyBytes, MountDir: filepath.Join(dir, "mounts"), UpperDir: upper})
}

// TestCopiesOnFullDisk: where a copy ends in the middle, the root is mounted, and nothing of the copy
// is left.
func TestCopiesOnFullDisk(t *testing.T) {
	f := openOn(t, 0, "size=200k")
	src := vfstest.NewSource(t)
	m := &repb.Directory{}
	for i := range 60 {
		m.Files = append(m.Files, &repb.FileNode{Name: fmt.Sprintf("f%02d", i), Digest: src.Blob(t, strings.Repeat(fmt.Sprint(i), 2000)).Proto()})
	}
	root := src.Add(t, m)
	src.Know(t, root)
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if isCopied(r) {
		t.Fatal("it is copied")
	}
	if b, err := os.ReadFile(filepath.Join(r.Path(), "f59")); string(b) != strings.Repeat("59", 2000) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	f.trash.Wait()
	if left, err := os.ReadDir(f.plainDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	small := src.Tree(t, "a")
	src.Know(t, small)
	if !isCopied(openRoot(t, f, RootSpec{Name: "small", Digest: small, Source: src})) {
		t.Error("a smaller one is not copied")
	}
}

// TestProgramsWithoutExecution: commands can run their inputs, also if no program may be run from the
// file system of the worker's folders.
func TestProgramsWithoutExecution(t *testing.T) {
	f := openOn(t, unix.MS_NOEXEC, "")
	src := vfstest.NewSource(t)
	root := src.Add(t, &repb.Directory{Files: []*repb.FileNode{{Name: "run", Digest: src.Blob(t, "#!/bin/sh\n").Proto(), IsExecutable: true}}})
	src.Know(t, root)
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if err := exec.Command(filepath.Join(r.Path(), "run")).Run(); err != nil {
		t.Errorf("copied: %t, %v", isCopied(r), err)
	}
}

// TestCopiesBelowDefaultACL: folders of the worker with an ACL for new files do not change the
// permissions of inputs.
func TestCopiesBelowDefaultACL(t *testing.T) {
	dir := t.TempDir()
	acl := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 7, math.MaxUint32}, {2, 7, 12345}, {4, 0, math.MaxUint32}, {16, 7, math.MaxUint32}, {32, 0, math.MaxUint32}} {
		acl = binary.LittleEndian.AppendUint16(acl, e.tag)
		acl = binary.LittleEndian.AppendUint16(acl, e.perm)
		acl = binary.LittleEndian.AppendUint32(acl, e.id)
	}
	if err := unix.Setxattr(dir, "system.posix_acl_default", acl, 0); err != nil {
		lacks(t, err)
	}
	f := openFS(t, Options{CopyBytes: copyBytes, MountDir: filepath.Join(dir, "mounts"), UpperDir: filepath.Join(dir, "upper")})
	src := vfstest.NewSource(t)
	r := openCopied(t, f, RootSpec{Digest: src.Tree(t, "dir/a", "run!"), Source: src})
	for p, want := range map[string]uint32{"dir": 0o755, "dir/a": 0o444, "run": 0o555} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(r.Path(), p), &st); err != nil || st.Mode&0o777 != want {
			t.Errorf("%s has mode %o, %v", p, st.Mode, err)
		}
		if n, err := unix.Listxattr(filepath.Join(r.Path(), p), nil); n != 0 || err != nil {
			t.Errorf("%s has attributes, %v", p, err)
		}
	}
}

// TestMeasuringIsNoRead: when the worker looks how much an action has written, no input is read.
func TestMeasuringIsNoRead(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	r := openCopied(t, f, RootSpec{Digest: src.Tree(t, "a/b/c", "d/e"), Source: src})
	r.WrittenBytes(1 << 30)
	if s := r.Stats(); s != (Stats{}) {
		t.Errorf("stats: %+v", s)
	}
}

// TestCopiedBytesOfAny: any number of bytes may be the most.
func TestCopiedBytesOfAny(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	r := openCopied(t, f, RootSpec{Digest: src.Tree(t, "a", "b"), Source: src})
	if err := os.WriteFile(filepath.Join(r.Path(), "out"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, most := range []int64{0, 1 << 30, math.MaxInt64} {
		if n := r.WrittenBytes(most); n < 1<<20 && n <= most {
			t.Errorf("%d bytes of at most %d", n, most)
		}
	}
}

// TestCopiedLongPaths: reads are known also where the whole path is longer than a system call takes.
func TestCopiedLongPaths(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a")
	for _, n := range []int{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 240} {
		root = src.Add(t, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: strings.Repeat("d", n), Digest: root.Proto()}}})
	}
	src.Know(t, root)
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if s := r.Stats(); s.Incomplete {
		t.Errorf("copied: %t, %+v", isCopied(r), s)
	}
}

// TestCopiedTreesOfOneDirectory: a tree that has few directories, but again and again, takes neither
// long nor much.
func TestCopiedTreesOfOneDirectory(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a")
	known := []digest.Digest{root}
	for range 60 {
		root = src.Add(t, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "l", Digest: root.Proto()}, {Name: "r", Digest: root.Proto()}}})
		known = append(known, root)
	}
	for _, d := range known {
		if _, err := src.Directory(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if isCopied(openRoot(t, f, RootSpec{Digest: root, Source: src})) {
		t.Error("the root is copied")
	}
}

// TestCopiedRootsAtOnce has many roots made, read, asked and closed at once, each with its own reads.
func TestCopiedRootsAtOnce(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	paths := []string{"dir/a"}
	for i := range 40 {
		paths = append(paths, fmt.Sprint("file", i))
	}
	root := src.Tree(t, paths...)
	src.Know(t, root)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 8 {
				r, err := f.NewRoot(t.Context(), RootSpec{Name: fmt.Sprint(i, ".", j), Digest: root, Source: src})
				if err != nil {
					t.Error(err)
					return
				}
				want := int64((i*j)%40 + 1)
				var askers sync.WaitGroup
				for range 3 {
					askers.Go(func() {
						for range 20 {
							r.Stats()
						}
					})
				}
				for k := range want {
					if _, err := os.ReadFile(filepath.Join(r.Path(), fmt.Sprint("file", k))); err != nil {
						t.Error(err)
					}
				}
				_, err = os.Stat(filepath.Join(r.Path(), "dir/a"))
				askers.Wait()
				if s := r.Stats(); s.FilesRead != want || s.DirectoriesRead != 1 || s.Incomplete {
					t.Errorf("%+v, want %d files", s, want)
				}
				for range 3 {
					askers.Go(func() { r.Stats() })
				}
				if err := errors.Join(err, r.Close()); err != nil {
					t.Error(err)
				}
				askers.Wait()
			}
		})
	}
	all.Wait()
}

// TestCopiedProgramsRun: no fork of this process has a copy open for writing when it is run.
func TestCopiedProgramsRun(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	program := "#!/bin/sh\n" + strings.Repeat("# long\n", 20000)
	root := src.Add(t, &repb.Directory{Files: []*repb.FileNode{{Name: "run", Digest: src.Blob(t, program).Proto(), IsExecutable: true}}})
	src.Know(t, root)
	stop := make(chan struct{})
	var forks sync.WaitGroup
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("/bin/true").Run()
				}
			}
		})
	}
	busy := 0
	for i := range 100 {
		r := openCopied(t, f, RootSpec{Name: fmt.Sprint(i), Digest: root, Source: src})
		err := exec.Command(filepath.Join(r.Path(), "run")).Run()
		if errors.Is(err, unix.ETXTBSY) {
			busy++
			err = nil
		}
		if err := errors.Join(err, r.Close()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	forks.Wait()
	if busy > 0 {
		t.Errorf("%d programs were busy", busy)
	}
}

// TestNoCopiesElsewhere: if the folder of the writable layers was moved, or its disk unmounted, it is
// not made again.
func TestNoCopiesElsewhere(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a")
	src.Know(t, root)
	if err := os.Rename(f.upperDir, f.upperDir+"-moved"); err != nil {
		t.Fatal(err)
	}
	r, err := f.NewRoot(t.Context(), RootSpec{Name: "root", Digest: root, Source: src})
	if err == nil {
		t.Error("a root is made elsewhere")
		_ = r.Close()
		_ = os.RemoveAll(f.upperDir)
	}
	if err := os.Rename(f.upperDir+"-moved", f.upperDir); err != nil {
		t.Fatal(err)
	}
}
