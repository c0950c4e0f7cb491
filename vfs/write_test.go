package vfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

func TestWritesStayInTheRoot(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		root := src.Tree(t, "dir/file", "dir/gone", "dir/sub/x", "other")
		one := openRoot(t, f, RootSpec{Name: "one", Digest: root, Source: src})
		two := openRoot(t, f, RootSpec{Name: "two", Digest: root, Source: src})
		for _, do := range []act{
			write("dir/file", "changed"), remove("dir/gone"), move("dir/sub", "sub2"), write("other", "longer than before"),
		} {
			if err := do(one.Path()); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{".", "dir", "dir/file", "other", "sub2", "sub2/x"}
		if got := vfstest.Walk(t, one.Path()); !slices.Equal(got, want) {
			t.Errorf("the action sees %q, want %q", got, want)
		}
		if got, _ := os.ReadFile(filepath.Join(one.Path(), "dir/file")); string(got) != "changed" {
			t.Errorf("the action reads %q", got)
		}
		want = []string{".", "dir", "dir/file", "dir/gone", "dir/sub", "dir/sub/x", "other"}
		if got := vfstest.Walk(t, two.Path()); !slices.Equal(got, want) {
			t.Errorf("another action sees %q, want %q", got, want)
		}
		for d, p := range src.Blobs {
			got, err := os.ReadFile(p)
			if err != nil || !strings.HasPrefix(string(got), "content of ") {
				t.Errorf("blob %s is now %q, %v", d, got, err)
			}
		}
	})
}

func TestMappedWritesToInputs(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		r := openRoot(t, f, RootSpec{Digest: src.Tree(t, "file"), Source: src})
		p := filepath.Join(r.Path(), "file")
		fd, err := unix.Open(p, unix.O_RDWR, 0) // copied up: from here on FUSE has no part in it
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		b, err := unix.Mmap(fd, 0, 7, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		copy(b, "CONTENT")
		if err := unix.Munmap(b); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(p); !bytes.Equal(got, []byte("CONTENT of file")) {
			t.Errorf("read %q, %v", got, err)
		}
	})
}

func TestSpecialFiles(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	r := openRoot(t, f, RootSpec{Digest: src.Tree(t, "file"), Source: src})
	dev := filepath.Join(r.Path(), "null")
	if err := unix.Mknod(dev, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(dev); !errors.Is(err, unix.EACCES) {
		t.Errorf("a device in a root can be opened: %v", err)
	}
	if _, ok := r.Unchanged("null"); ok {
		t.Error("a device is an input")
	}
	fifo := filepath.Join(r.Path(), "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Written("fifo"); ok { // and it did not wait for a writer
		t.Error("a pipe is a regular file")
	}
}
