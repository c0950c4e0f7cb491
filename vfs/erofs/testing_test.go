package erofs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 7, time.UTC)

func file(name string, size int64, redirect string) Entry {
	return Entry{Name: name, Mode: unix.S_IFREG | 0o444, Size: size, Redirect: redirect, MTime: epoch}
}

func dir(name string, entries ...Entry) Entry {
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return Entry{Name: name, Mode: unix.S_IFDIR | 0o755, Entries: entries, MTime: epoch}
}

func opaque(d Entry) Entry {
	d.Opaque = true
	return d
}

func link(name, target string) Entry {
	return Entry{Name: name, Mode: unix.S_IFLNK | 0o777, Target: target, MTime: epoch}
}

// write returns the image of a tree.
func write(t testing.TB, root Entry, o Options) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := Write(&b, &root, o)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) || n%blockSize != 0 {
		t.Errorf("size %d, wrote %d", n, b.Len())
	}
	return b.Bytes()
}

// mountImage mounts an image below a folder of the test and returns where.
func mountImage(t testing.TB, image []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	return mount(t, path, "erofs", unix.MS_RDONLY, "")
}

// mount mounts something until the end of the test. Where the machine cannot, the test is skipped,
// or fails if CI is set.
func mount(t testing.TB, source, kind string, flags uintptr, data string) string {
	t.Helper()
	at := t.TempDir()
	err := unix.Mount(source, at, kind, flags, data)
	for _, no := range []error{unix.EPERM, unix.ENODEV, unix.ENOTBLK} {
		if errors.Is(err, no) && os.Getenv("CI") == "" {
			t.Skipf("cannot mount %s: %v", kind, err)
		}
	}
	if err != nil {
		t.Fatalf("mount %s: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Errorf("unmount %s: %v", kind, err)
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	})
	return at
}

// A walk compares a mounted image with the tree it was written from.
type walk struct {
	t     testing.TB
	o     Options
	image *Image // nil: the numbers of inodes go into inodes
	root  string
	seen  int

	inodes map[uint64]string
}

// checkMounted compares the whole tree.
func checkMounted(t testing.TB, root *Entry, o Options, image []byte) *walk {
	t.Helper()
	m, err := OpenImage(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{t: t, o: o, image: m, root: mountImage(t, image)}
	w.check(root, "")
	return w
}

func (w *walk) check(e *Entry, path string) {
	w.t.Helper()
	w.seen++
	full := filepath.Join(w.root, path)
	var st unix.Stat_t
	if err := unix.Lstat(full, &st); err != nil {
		w.t.Fatal(err)
	}
	if st.Mode != e.Mode || st.Nlink != 1 || st.Uid != w.o.UID || st.Gid != w.o.GID ||
		!time.Unix(st.Mtim.Unix()).Equal(e.MTime) {
		w.t.Errorf("%q: %+v, want %+v", path, st, e)
	}
	if w.image == nil {
		w.inodes[st.Ino] = path
	} else if got, err := w.image.Path(st.Ino); err != nil || got != path {
		w.t.Errorf("path of inode %d is %q, want %q: %v", st.Ino, got, path, err)
	}
	switch fileType(e.Mode) {
	case typeFile:
		if st.Size != e.Size {
			w.t.Errorf("%q: size %d, want %d", path, st.Size, e.Size)
		}
		if e.Size > 0 {
			w.checkXattrs(full, "metacopy=", "redirect="+e.Redirect)
		} else {
			w.checkXattrs(full)
		}
	case typeSymlink:
		if got, err := os.Readlink(full); err != nil || got != e.Target || st.Size != int64(len(e.Target)) {
			w.t.Errorf("%q: link to %q, size %d, want %q: %v", path, got, st.Size, e.Target, err)
		}
	case typeDir:
		w.checkNames(e, path)
		if e.Opaque {
			w.checkXattrs(full, "opaque=y")
		} else {
			w.checkXattrs(full)
		}
		for i := range e.Entries {
			w.check(&e.Entries[i], filepath.Join(path, e.Entries[i].Name))
		}
	}
}

func (w *walk) checkNames(e *Entry, path string) {
	w.t.Helper()
	got, err := os.ReadDir(filepath.Join(w.root, path))
	if err != nil {
		w.t.Fatal(err)
	}
	var have, want []string
	for _, d := range got {
		have = append(have, fmt.Sprintf("%q %v", d.Name(), d.Type()))
	}
	for i := range e.Entries {
		kind := map[byte]os.FileMode{typeDir: os.ModeDir, typeSymlink: os.ModeSymlink}[fileType(e.Entries[i].Mode)]
		want = append(want, fmt.Sprintf("%q %v", e.Entries[i].Name, kind))
	}
	if !slices.Equal(have, want) {
		w.t.Errorf("%q: %d names, want %d:\n%.1000q\n%.1000q", path, len(have), len(want), have, want)
	}
}

// checkXattrs wants a file to have these attributes, as it lists them and if it is asked for each.
func (w *walk) checkXattrs(path string, want ...string) {
	w.t.Helper()
	const prefix = "trusted.overlay."
	var b [8192]byte
	n, err := unix.Llistxattr(path, b[:])
	if err != nil {
		w.t.Fatal(err)
	}
	list := ""
	for _, x := range want {
		name, _, _ := strings.Cut(x, "=")
		list += prefix + name + "\x00"
	}
	if string(b[:n]) != list {
		w.t.Errorf("%q: lists attributes %q, want %q", path, b[:n], list)
	}
	var got []string
	for _, name := range []string{"metacopy", "opaque", "redirect"} {
		n, err := unix.Lgetxattr(path, prefix+name, b[:])
		switch {
		case err == nil:
			got = append(got, fmt.Sprintf("%s=%s", name, b[:n]))
		case !errors.Is(err, unix.ENODATA):
			w.t.Errorf("%q: attribute %s: %v", path, name, err)
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("%q: attributes %q, want %q", path, got, want)
	}
}

// randomTree makes trees of all that an Entry can be, with a taste for the limits.
type randomTree struct {
	*rand.Rand
	left int // entries to go
}

func (r *randomTree) dir(name string, depth int) Entry {
	n := r.IntN(12)
	if r.IntN(10) == 0 {
		n = r.IntN(800)
	}
	seen := map[string]bool{".": true, "..": true}
	var entries []Entry
	for ; n > 0 && r.left > 0; n-- {
		name := r.name()
		if seen[name] {
			continue
		}
		seen[name] = true
		r.left--
		entries = append(entries, r.entry(name, depth))
	}
	d := dir(name, entries...)
	d.MTime = r.time()
	d.Opaque = r.IntN(3) == 0
	return d
}

func (r *randomTree) entry(name string, depth int) (e Entry) {
	switch k := r.IntN(10); {
	case k < 3 && depth < 12:
		return r.dir(name, depth+1)
	case k < 5:
		e = link(name, r.text(1+r.IntN([]int{20, 200, 4095}[r.IntN(3)]), "ab/\xff."))
	case k < 6:
		e = file(name, 0, "")
	default:
		e = file(name, 1+r.Int64N(1<<[]int{12, 32, 50}[r.IntN(3)]), "/"+r.text(1+r.IntN(100), "0123-"))
	}
	e.Mode = e.Mode&unix.S_IFMT | uint32(r.IntN(0o10000))
	e.MTime = r.time()
	return e
}

func (r *randomTree) time() time.Time {
	switch r.IntN(4) {
	case 0:
		return time.Unix(r.Int64N(1<<33)-1<<32, r.Int64N(1e9))
	case 1:
		return epoch
	}
	return time.Time{}
}

func (r *randomTree) name() string {
	n := 1 + r.IntN(12)
	if r.IntN(8) == 0 {
		n = maxName - r.IntN(3)
	}
	return r.text(n, "ab.!-~\x01\xff\xc3")
}

func (r *randomTree) text(n int, alphabet string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}
