package folder

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNameless has files without names: one that is open twice, one that is mapped, and one in
// memory; and others with names.
func TestNameless(t *testing.T) {
	const bytes = 1 << 20
	here := []int{os.Getpid()}
	before := Nameless(here, 1<<40)
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
		if got := Nameless(here, 1<<40) - before; got < want || got > want+want/4 {
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
	if got := Nameless(here, bytes/2); got < bytes || got > 2*bytes {
		t.Errorf("beyond the bound %d bytes are counted", got)
	}
	if got := Nameless([]int{1 << 30}, 1<<40); got != 0 {
		t.Errorf("a process that there is not has %d bytes", got)
	}
}
