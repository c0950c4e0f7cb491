package hugepages

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]mapping{
		"3fb2f0400000-3fb2f6c00000 rw-p 00000000 00:00 0 ":                       {0x3fb2f0400000, 0x3fb2f6c00000},
		"c000000000-c000400000 rw-p 00000000 00:00 0      [anon: Go: heap]":      {0xc000000000, 0xc000400000},
		"3fb2f0000000-3fb2f0400000 ---p 00000000 00:00 0 ":                       {},
		"7f4449d00000-7f444be00000 rw-s 00000000 00:00 0 ":                       {},
		"0058f000-0059a000 rw-p 0018f000 fe:00 10005074        /usr/bin/program": {},
		"7ffcbfdd2000-7ffcbfdf3000 rw-p 00000000 00:00 0              [stack]":   {},
		"zz-c000400000 rw-p 00000000 00:00 0":                                    {},
		"":                                                                       {},
	} {
		if got, ok := parse(line); ok != (want != mapping{}) || ok && got != want {
			t.Errorf("%q: %x, %v", line, got, ok)
		}
	}
}

// TestLook: memory is put on a huge page only if all of it is in use, and takes no more room.
func TestLook(t *testing.T) {
	size := pageSize()
	if size == 0 {
		skip(t, "no huge pages")
	}
	region := mapped(t, 4*int(size))
	start := (uintptr(unsafe.Pointer(&region[0])) + size - 1) / size * size
	first := start - uintptr(unsafe.Pointer(&region[0]))
	for i := first; i < first+3*size; i += uintptr(os.Getpagesize()) {
		region[i] = 1
	}
	// Released memory is no longer in use.
	if err := unix.Madvise(region[first+size:first+2*size-1<<16], unix.MADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	m := mapping{start, start + 3*size}
	if got, want := slices.Collect(m.full(size)), []uintptr{start, start + 2*size}; !slices.Equal(got, want) {
		t.Fatalf("pages in use are %x, want %x", got, want)
	}
	rss, huge := kilobytes(t, start, "Rss"), kilobytes(t, start, "AnonHugePages")
	if !look(t.Context(), size, 1<<40, 0) {
		t.Error("a small process is not looked at again")
	}
	if n := kilobytes(t, start, "AnonHugePages"); n != huge {
		t.Fatalf("a small process has %d KiB of it on huge pages, before %d", n, huge)
	}
	if collapse(start, size) != nil {
		skip(t, "the kernel makes no huge pages of memory in use")
	}
	if !look(t.Context(), size, 0, 0) {
		t.Error("a large process is not looked at again")
	}
	if n := kilobytes(t, start, "AnonHugePages"); n != 2*int(size)>>10 {
		t.Errorf("%d KiB are on huge pages, want %d", n, 2*size>>10)
	}
	if n := kilobytes(t, start, "Rss"); n != rss {
		t.Errorf("%d KiB are in memory, want %d", n, rss)
	}
}

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// mapped returns new memory of that many bytes.
func mapped(t *testing.T, n int) []byte {
	region, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(region) })
	// It is a mapping of its own.
	if err := unix.Madvise(region, unix.MADV_DONTFORK); err != nil {
		t.Fatal(err)
	}
	return region
}

// kilobytes returns a count of proc_pid_smaps(5) of the mapping that has an address.
func kilobytes(t *testing.T, address uintptr, key string) (n int) {
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var m mapping
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if head, ok := parse(line); ok || strings.Contains(line, "-p ") {
			m = head
		}
		if address >= m.start && address < m.end && strings.HasPrefix(line, key+":") {
			if _, err := fmt.Sscanf(line, key+": %d kB", &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s of %x", key, address)
	return 0
}
