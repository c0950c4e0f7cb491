package erofs

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const someRedirect = "/sha256/e3/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855-12345"

// TestMillion writes a million files in directories of up to 100,000 entries and looks some up.
func TestMillion(t *testing.T) {
	const perDir = 100_000
	entries := make([]Entry, perDir)
	for j := range entries {
		entries[j] = file(fmt.Sprintf("%040d", j), int64(1+j), someRedirect)
	}
	var folders []Entry
	for i := range 10 {
		folders = append(folders, Entry{
			Name: fmt.Sprint(i), Mode: unix.S_IFDIR | 0o755, MTime: epoch, Entries: entries,
		})
	}
	root := dir("", folders...)
	path := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := Write(f, &root, Options{Epoch: epoch})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d an entry", size, size/(10*perDir))
	m, err := OpenImage(f)
	if err != nil {
		t.Fatal(err)
	}
	at := mount(t, path, "erofs", unix.MS_RDONLY, "")
	for i := range folders {
		for _, j := range []int{0, 1, 777, perDir / 2, perDir - 1} {
			name := filepath.Join(folders[i].Name, folders[i].Entries[j].Name)
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(at, name), &st); err != nil || st.Size != int64(1+j) {
				t.Errorf("%s: size %d, %v", name, st.Size, err)
			}
			if got, err := m.Path(st.Ino); err != nil || got != name {
				t.Errorf("inode %d: %q, %v, want %q", st.Ino, got, err, name)
			}
		}
	}
	if got, err := os.ReadDir(filepath.Join(at, "9")); err != nil || len(got) != perDir {
		t.Errorf("%d names, %v", len(got), err)
	}
}

// TestDeep goes down 10,000 levels.
func TestDeep(t *testing.T) {
	const levels = 10_000
	e := dir("d", file("f", 1, "/x"))
	for range levels - 1 {
		e = dir("d", e)
	}
	root := dir("", e)
	image := write(t, root, Options{Epoch: epoch})
	fd, err := unix.Open(mountImage(t, image), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range levels {
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatalf("level %d: %v", i, err)
		}
		fd = next
	}
	var st unix.Stat_t
	err = unix.Fstatat(fd, "f", &st, 0)
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	m, err := OpenImage(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Path(st.Ino); err != nil || got != strings.Repeat("d/", levels)+"f" {
		t.Errorf("path of the deepest: %d bytes, %v", len(got), err)
	}
}

// goSDK is the tree of the Go installation, with made-up places of data.
func goSDK(b *testing.B) (root Entry, entries int) {
	b.Helper()
	var read func(path, name string) Entry
	read = func(path, name string) Entry {
		list, err := os.ReadDir(path)
		if err != nil {
			b.Fatal(err)
		}
		var children []Entry
		for _, d := range list {
			full := filepath.Join(path, d.Name())
			entries++
			switch d.Type() {
			case fs.ModeDir:
				children = append(children, read(full, d.Name()))
			case fs.ModeSymlink:
				children = append(children, link(d.Name(), "elsewhere"))
			default:
				info, err := d.Info()
				if err != nil {
					b.Fatal(err)
				}
				hash := hex.EncodeToString(fmt.Appendf(nil, "%032d", entries))
				children = append(children, file(d.Name(), info.Size(),
					fmt.Sprintf("/sha256/%s/%s-%d", hash[:2], hash, info.Size())))
			}
		}
		return dir(name, children...)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Fatal(err)
	}
	root = read(strings.TrimSpace(string(goroot)), "")
	return root, entries
}

func BenchmarkWrite(b *testing.B) {
	root, entries := goSDK(b)
	o := Options{Epoch: epoch}
	run := func(name string, w func(b *testing.B) io.Writer) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var size int64
			for b.Loop() {
				var err error
				if size, err = Write(w(b), &root, o); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size), "bytes")
			b.ReportMetric(float64(entries), "entries")
		})
	}
	run("nowhere", func(*testing.B) io.Writer { return io.Discard })
	f, err := os.Create(filepath.Join(b.TempDir(), "image"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	run("file", func(b *testing.B) io.Writer {
		if err := f.Truncate(0); err != nil {
			b.Fatal(err)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			b.Fatal(err)
		}
		return f
	})
}

// BenchmarkPath finds the paths of the inodes of the Go installation in an image file.
func BenchmarkPath(b *testing.B) {
	root, _ := goSDK(b)
	f, err := os.Create(filepath.Join(b.TempDir(), "image"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	size, err := Write(f, &root, Options{Epoch: epoch})
	if err != nil {
		b.Fatal(err)
	}
	m, err := OpenImage(f)
	if err != nil {
		b.Fatal(err)
	}
	var nids []uint64
	for nid := range uint64(size / slotSize) {
		if _, err := m.Path(nid); err == nil {
			nids = append(nids, nid)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := m.Path(nids[i*7919%len(nids)]); err != nil {
			b.Fatal(err)
		}
	}
}
