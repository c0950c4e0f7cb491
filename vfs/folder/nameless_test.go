package folder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNameless has files without names: one that is open twice, one that is mapped, and one in
// memory; and others with names.
func TestNameless(t *testing.T) {
	const bytes = 1 << 20
	here := []int{os.Getpid()}
	before := Nameless(t.Context(), here, 1<<40)
	make := func(name string) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err == nil {
			_, err = f.Write(make([]byte, bytes))
		}
		if err = errors.Join(err, f.Sync()); err != nil { // it has blocks from then on
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	made := func(want int64) {
		t.Helper()
		// A file system may have some more for it.
		if got := Nameless(t.Context(), here, 1<<40) - before; got < want || got > want+want/4 {
			t.Errorf("files without names take %d bytes, want %d", got, want)
		}
	}
	open := make("open")
	made(0)
	if err := os.Remove(open.Name()); err != nil {
		t.Fatal(err)
	}
	again, err := unix.Dup(int(open.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(again) }()
	made(bytes)
	mapped := make("mapped")
	m, err := unix.Mmap(int(mapped.Fd()), 0, bytes, unix.PROT_READ, unix.MAP_SHARED)
	if err = errors.Join(err, mapped.Close(), os.Remove(mapped.Name())); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	made(2 * bytes)
	memory, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(memory) }()
	if _, err := unix.Write(memory, m); err != nil {
		t.Fatal(err)
	}
	made(2 * bytes)
	if got := Nameless(t.Context(), here, bytes/2); got < bytes || got > 2*bytes {
		t.Errorf("beyond the bound %d bytes are counted", got)
	}
	if got := Nameless(t.Context(), []int{1 << 30}, 1<<40); got != 0 {
		t.Errorf("a process that there is not has %d bytes", got)
	}
}

// TestNamelessOfAThread: a thread may have open files of its own.
func TestNamelessOfAThread(t *testing.T) {
	const bytes = 1 << 20
	here := []int{os.Getpid()}
	before := Nameless(t.Context(), here, 1<<40)
	f, err := os.Create(filepath.Join(t.TempDir(), "open"))
	if err == nil {
		_, err = f.Write(make([]byte, bytes))
	}
	if err = errors.Join(err, f.Sync(), os.Remove(f.Name())); err != nil {
		t.Fatal(err)
	}
	fd := int(f.Fd())
	alone, end, ended := make(chan error), make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread() // nothing else runs in it
		alone <- unix.Unshare(unix.CLONE_FILES)
		<-end
		ended <- unix.Close(fd) // its own: the first thread of a process does not end
	}()
	if err := <-alone; err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil { // the thread still has it
		t.Fatal(err)
	}
	got := Nameless(t.Context(), here, 1<<40) - before
	close(end)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got < bytes || got > bytes+bytes/4 {
		t.Errorf("files without names of a thread take %d bytes, want %d", got, bytes)
	}
}

// TestNamelessEnds: a look ends with its context.
func TestNamelessEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := Nameless(ctx, []int{os.Getpid()}, 1<<40); got != 0 {
		t.Errorf("%d bytes after the end", got)
	}
}
