package erofs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMounted(t *testing.T) {
	o := Options{Epoch: epoch, UID: 12, GID: 34}
	redirect := "/sha256/ab/" + strings.Repeat("ab", 32) + "-12"
	later := file("later", 5, redirect)
	later.MTime = epoch.Add(time.Hour)
	var many, links []Entry
	for i := range 3000 {
		many = append(many, file(fmt.Sprintf("entry%d", i), int64(i), redirect))
	}
	for i := range 100 {
		links = append(links, link(fmt.Sprint(i), strings.Repeat("x", 4095-i)))
		links = append(links, link(fmt.Sprintf("%d short", i), strings.Repeat("y", 1+i)))
	}
	root := dir("",
		file("empty", 0, ""), file("small", 12, redirect), later,
		file("4 GiB less one", 1<<32-1, redirect), file("4 GiB", 1<<32, redirect), file("8 EiB less one", 1<<63-1, redirect),
		file(strings.Repeat("n", 255), 1, redirect), file("\xff\xfe\x01\n", 1, redirect),
		file("long path", 1, "/"+strings.Repeat("p", 4094)),
		dir("empty folder"), dir("dots", file("!", 1, redirect), file(".!", 1, redirect), file("...", 1, redirect),
			file(".a", 1, redirect), file("..a", 1, redirect), file("a", 1, redirect)),
		dir("many", many...), dir("links", links...), link("link", "small"),
	)
	w := checkMounted(t, &root, o, write(t, root, o))
	if want := 1 + len(root.Entries) + 6 + len(many) + len(links); w.seen != want {
		t.Errorf("saw %d entries, want %d", w.seen, want)
	}
	if _, err := os.Stat(filepath.Join(w.root, "many", "entry")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a name that is not there: %v", err)
	}
	// Data that is elsewhere must not look like data.
	if b, err := os.ReadFile(filepath.Join(w.root, "small")); !errors.Is(err, unix.EIO) {
		t.Errorf("read without data: %q, %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(w.root, "empty")); err != nil || len(b) > 0 {
		t.Errorf("empty file: %q, %v", b, err)
	}
}

func TestRandomTreesMounted(t *testing.T) {
	for seed := range uint64(12) {
		r := &randomTree{rand.New(rand.NewPCG(seed, 1)), 2000}
		o := Options{Epoch: epoch, UUID: [16]byte{1, byte(seed)}}
		if seed%3 == 0 {
			o.UID = 1 << 20
		}
		root := r.dir("", 0)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := checkMounted(t, &root, o, write(t, root, o))
			if w.image.UUID() != o.UUID {
				t.Errorf("UUID %x", w.image.UUID())
			}
			if t.Failed() {
				t.Log("seed", seed)
			}
		})
	}
}

// TestDirectorySizes goes over sizes of directories byte by byte, so that the last block fits
// behind the inode, just does not, and is full.
func TestDirectorySizes(t *testing.T) {
	const count = 18
	var folders []Entry
	for n := 3600; n < 4200; n++ {
		left := n - len("...") - (count+2)*direntSize
		var entries []Entry
		for i := range count {
			length := left / (count - i)
			left -= length
			entries = append(entries, file(string(rune('a'+i))+strings.Repeat("x", length-1), 1, "/x"))
		}
		folders = append(folders, dir(fmt.Sprint(n), entries...), opaque(dir(fmt.Sprint(n, "o"), entries...)))
	}
	root := dir("", folders...)
	checkMounted(t, &root, Options{Epoch: epoch}, write(t, root, Options{Epoch: epoch}))
}

func TestSharedEntries(t *testing.T) {
	shared := []Entry{file("a", 1, "/a"), dir("b", file("c", 2, "/c"))}
	root := dir("", dir("one", shared...), dir("two", shared...), dir("three", dir("four", shared...)))
	o := Options{Epoch: epoch}
	first := write(t, root, o)
	checkMounted(t, &root, o, first)
	if !bytes.Equal(first, write(t, root, o)) {
		t.Error("another image the second time")
	}
}

func TestRefused(t *testing.T) {
	ok := file("a", 1, "/a")
	with := func(change func(e *Entry)) Entry {
		e := ok
		change(&e)
		return dir("", dir("sub", e))
	}
	for name, root := range map[string]Entry{
		"root is a file":    ok,
		"name empty":        with(func(e *Entry) { e.Name = "" }),
		"name dot":          with(func(e *Entry) { e.Name = "." }),
		"name dots":         with(func(e *Entry) { e.Name = ".." }),
		"name with slash":   with(func(e *Entry) { e.Name = "a/b" }),
		"name with NUL":     with(func(e *Entry) { e.Name = "a\x00" }),
		"name too long":     with(func(e *Entry) { e.Name = strings.Repeat("a", 256) }),
		"mode of a device":  with(func(e *Entry) { e.Mode = unix.S_IFBLK | 0o600 }),
		"mode of nothing":   with(func(e *Entry) { e.Mode = 0o600 }),
		"mode too large":    with(func(e *Entry) { e.Mode |= 1 << 16 }),
		"size negative":     with(func(e *Entry) { e.Size = -1 }),
		"no redirect":       with(func(e *Entry) { e.Redirect = "" }),
		"redirect relative": with(func(e *Entry) { e.Redirect = "a" }),
		"redirect doubled":  with(func(e *Entry) { e.Redirect = "/a//b" }),
		"redirect to dir":   with(func(e *Entry) { e.Redirect = "/a/" }),
		"redirect NUL":      with(func(e *Entry) { e.Redirect = "/a\x00" }),
		"redirect too long": with(func(e *Entry) { e.Redirect = "/" + strings.Repeat("a", 4095) }),
		"link to nothing":   with(func(e *Entry) { *e = link("a", "") }),
		"link too long":     with(func(e *Entry) { *e = link("a", strings.Repeat("a", 4096)) }),
		"link with NUL":     with(func(e *Entry) { *e = link("a", "a\x00b") }),
		"file with entries": with(func(e *Entry) { e.Entries = []Entry{ok} }),
		"twice":             {Mode: unix.S_IFDIR, Entries: []Entry{dir("sub", ok, ok)}},
		"out of order":      {Mode: unix.S_IFDIR, Entries: []Entry{dir("sub"), ok}},
	} {
		var b bytes.Buffer
		n, err := Write(&b, &root, Options{})
		if err == nil || n != 0 || b.Len() != 0 {
			t.Errorf("%s: wrote %d bytes: %v", name, n, err)
			continue
		}
		t.Log(err)
		if strings.HasPrefix(name, "name") && !strings.Contains(err.Error(), `"sub/`) {
			t.Errorf("%s: %v does not name the place", name, err)
		}
	}
}

func TestTooLarge(t *testing.T) {
	loop := []Entry{dir("again"), file("b", 1, "/b")}
	loop[0].Entries = loop
	root := dir("", loop...)
	if _, err := Write(io.Discard, &root, Options{MaxBytes: 10 << 20}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a tree that contains itself: %v", err)
	}
	small := dir("", file("b", 1, "/b"))
	if n, err := Write(io.Discard, &small, Options{MaxBytes: blockSize}); err != nil || n != blockSize {
		t.Errorf("just as large: %d, %v", n, err)
	}
	if _, err := Write(io.Discard, &small, Options{MaxBytes: blockSize - 1}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte too large: %v", err)
	}
	if _, err := Write(io.Discard, &small, Options{MaxBytes: -1}); err == nil {
		t.Error("negative limit taken")
	}
}

type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, unix.ENOSPC
	}
	return len(b), nil
}

func TestWriterFails(t *testing.T) {
	var entries []Entry
	for i := range 10000 {
		entries = append(entries, file(fmt.Sprint(i), 1, "/x"))
	}
	root := dir("", entries...)
	size := len(write(t, root, Options{}))
	for _, left := range []int{0, bufferBytes, size - 1} {
		if _, err := Write(&failing{left}, &root, Options{}); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("room for %d of %d bytes: %v", left, size, err)
		}
	}
}
