package uncharged

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCountLocks counts in tables of all lengths.
func TestCountLocks(t *testing.T) {
	const lock = "OFDLCK ADVISORY  WRITE -1 fe:00:9978079 2 2"
	for _, c := range []struct{ locks, few, most, least, greatest int }{
		{0, 0, 100, 0, 0},
		{1, 0, 100, 1, 1},
		{30, 0, 100, 30, 30},
		{5000, 0, 100, 100, 400},
		{5000, 0, 1 << 20, 4375, 5000},
		{5000, 5000, 1 << 20, 0, 0},
		{5000, 4000, 1 << 20, 4375, 5000},
		{100_000, 1000, 1 << 20, 87_500, 100_000},
		{100_000, 1000, 50_000, 50_000, 100_000},
	} {
		var table strings.Builder
		for i := range c.locks {
			fmt.Fprintf(&table, "%d: %s\n%d:  -> %s\n", i+1, lock, i+1, lock)
		}
		n, err := countLocks(strings.NewReader(table.String()), c.few, c.most)
		if n < c.least || n > c.greatest || err != nil {
			t.Errorf("%+v: %d locks, %v", c, n, err)
		}
	}
	for name, table := range map[string]tableFunc{
		"not a number": func(p []byte) (int, error) { return copy(p, "lock: one\n"), nil },
		"unreadable":   func([]byte) (int, error) { return 0, unix.EIO },
	} {
		if n, err := countLocks(table, 0, 1); err == nil {
			t.Errorf("%s: %d locks", name, n)
		}
	}
	if _, err := countLocks(tableFunc(func([]byte) (int, error) { return 0, unix.EIO }), 0, 1); !errors.Is(err, unix.EIO) {
		t.Errorf("%v, want %v", err, unix.EIO)
	}
}

// A tableFunc is a table that reads the same everywhere.
type tableFunc func(p []byte) (int, error)

func (f tableFunc) ReadAt(p []byte, _ int64) (int, error) { return f(p) }

// TestLocks takes locks of a file, and looks for them through the table of all, and through the
// descriptors of this process.
func TestLocks(t *testing.T) {
	here := []int{os.Getpid(), 1 << 30}
	before, _ := LocksOf(t.Context(), here, 1<<20)
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const some = 1000
	for i := range int64(some) {
		for start, command := range map[int64]int{4 * i: unix.F_SETLK, 4*i + 2: unix.F_OFD_SETLK} {
			lock := unix.Flock_t{Type: unix.F_WRLCK, Start: start, Len: 1}
			if err := unix.FcntlFlock(f.Fd(), command, &lock); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The same file is open under other descriptors.
	const copies = 5
	for range copies {
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
	}
	if n, err := Locks(0, 1<<20); n < 2*some-2*some/countedTo || err != nil {
		t.Errorf("%d locks, %v; there are %d", n, err, 2*some)
	}
	if n, err := Locks(1<<16, 1<<20); n != 0 || err != nil {
		t.Errorf("%d locks, %v; there are few", n, err)
	}
	if n, certain := LocksOf(t.Context(), here, 2*some+before); n != 2*some+before || !certain {
		t.Errorf("%d locks, certain: %v; want %d", n, certain, 2*some+before)
	}
	if n, certain := LocksOf(t.Context(), here, some); n <= some || certain {
		t.Errorf("%d locks, certain: %v, after many of %d times %d were shown", n, certain, copies+1, 2*some)
	}
	for range shownAgain {
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
	}
	if n, certain := LocksOf(t.Context(), here, 2*some+before); n <= 2*some+before || certain {
		t.Errorf("%d locks, certain: %v, after as many as there may be were shown again and again", n, certain)
	}
	if n, certain := LocksOf(t.Context(), nil, 1); n != 0 || !certain {
		t.Errorf("%d locks of nobody, certain: %v", n, certain)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if n, certain := LocksOf(ended, here, 1<<20); n != 0 || certain {
		t.Errorf("%d locks, certain: %v; nobody wants to know", n, certain)
	}
	if !slices.Contains(Everyone(), os.Getpid()) {
		t.Error("this process is not among all")
	}
}
