package erofs

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
)

func TestOpenImageRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty": nil, "short": make([]byte, 1100), "zeros": make([]byte, 1<<16),
	} {
		if _, err := OpenImage(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestPath asks for every number up to the end of images, and wants exactly the paths that the
// trees have.
func TestPath(t *testing.T) {
	var outer []Entry
	for i := range 500 {
		outer = append(outer, file(fmt.Sprintf("%0200d", i), 1, "/x"))
	}
	trees := []Entry{dir(""), dir("", dir("large", outer...), dir("dots", file("!", 1, "/x")))}
	for seed := range uint64(5) {
		r := &randomTree{rand.New(rand.NewPCG(seed, 2)), 500}
		trees = append(trees, r.dir("", 0))
	}
	for i := range trees {
		image := write(t, trees[i], Options{Epoch: epoch})
		want := map[string]bool{}
		addPaths(want, &trees[i], "")
		m, err := OpenImage(bytes.NewReader(image))
		if err != nil {
			t.Fatal(err)
		}
		for nid := range uint64(len(image)/slotSize + 100) {
			got, err := m.Path(nid)
			if err == nil {
				if !want[got] {
					t.Errorf("tree %d: inode %d is %q: no such path, or again", i, nid, got)
				}
				delete(want, got)
			} else if !errors.Is(err, ErrNotFound) {
				t.Errorf("tree %d: inode %d: %v", i, nid, err)
			}
		}
		if len(want) > 0 {
			t.Errorf("tree %d: %d paths were not found", i, len(want))
		}
	}
	if _, err := (&Image{r: bytes.NewReader(nil)}).Path(1 << 63); !errors.Is(err, ErrNotFound) {
		t.Errorf("number out of range: %v", err)
	}
}

// TestRedirects checks the redirects of all files with data, and that a damaged image without
// redirects has none.
func TestRedirects(t *testing.T) {
	var outer []Entry
	want := map[string]int{"/x": 2, "/y": 1}
	for i := range 500 {
		name := fmt.Sprintf("%0200d", i)
		outer = append(outer, file(name, 1, "/"+name))
		want["/"+name] = 1
	}
	outer = append(outer, dir("within", file("empty", 0, ""), file("y", 1<<40, "/y")))
	tree := dir("", file("!", 1, "/x"), file("1", 1, "/x"), dir("empty"), dir("large", outer...), link("to", "x"))
	image := write(t, tree, Options{Epoch: epoch})
	m, err := OpenImage(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	if err := m.Redirects(func(r string) { got[r]++ }); err != nil || !maps.Equal(got, want) {
		t.Errorf("%d of %d, %v", len(got), len(want), err)
	}
	at := bytes.LastIndex(image, []byte(redirectName))
	image[at] = '!'
	if err := m.Redirects(func(string) {}); !errors.Is(err, errNoData) {
		t.Errorf("a file that has lost its data: %v", err)
	}
	m = &Image{r: bytes.NewReader(image[:len(image)/2])}
	if err := m.Redirects(func(string) {}); err == nil {
		t.Error("half an image has all files")
	}
}

func addPaths(paths map[string]bool, e *Entry, at string) {
	paths[at] = true
	for i := range e.Entries {
		addPaths(paths, &e.Entries[i], strings.TrimPrefix(path.Join(at, e.Entries[i].Name), "/"))
	}
}

// FuzzPath damages an image. Path may return anything, but must return.
func FuzzPath(f *testing.F) {
	r := &randomTree{rand.New(rand.NewPCG(1, 3)), 300}
	image := write(f, r.dir("", 0), Options{Epoch: epoch})
	f.Add(uint64(rootNID), uint32(0), []byte{0})
	f.Add(uint64(rootNID+5), uint32(rootNID*slotSize), []byte{5, 0, 0, 0, 0xff})
	f.Add(uint64(rootNID+9), uint32(rootNID*slotSize+20), bytes.Repeat([]byte{0xff}, 300))
	f.Fuzz(func(t *testing.T, nid uint64, at uint32, damage []byte) {
		b := bytes.Clone(image)
		copy(b[int(at)%len(b):], damage)
		m, err := OpenImage(bytes.NewReader(b))
		if err != nil {
			return
		}
		for _, n := range []uint64{nid, nid % uint64(len(b)/slotSize)} {
			_, _ = m.Path(n)
		}
		_ = m.Redirects(func(string) {})
	})
}

// BenchmarkNode measures a lookup of files that are opened directory by directory, at random, and of a
// few again and again.
func BenchmarkNode(b *testing.B) {
	var dirs []Entry
	for i := range 200 {
		var files []Entry
		for j := range 50 {
			files = append(files, file(fmt.Sprintf("some_header_%03d.h", j), 1, "/blobs/ab/"+strings.Repeat("0123", 16)))
		}
		dirs = append(dirs, dir(fmt.Sprintf("folder%03d", i), dir("include", files...)))
	}
	image := write(b, dir("", dirs...), Options{Epoch: epoch})
	m, err := OpenImage(bytes.NewReader(image))
	if err != nil {
		b.Fatal(err)
	}
	var nids []uint64
	for nid := range uint64(len(image) / slotSize) {
		if n, err := m.Node(nid); err == nil && n.Redirect != "" {
			nids = append(nids, nid)
		}
	}
	for name, c := range map[string]struct{ step, files int }{"ordered": {1, len(nids)}, "spread": {7919, len(nids)}, "again": {7919, 20}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := m.Node(nids[i%c.files*c.step%len(nids)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
