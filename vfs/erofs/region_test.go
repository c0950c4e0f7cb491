package erofs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// regions writes trees directory by directory.
type regions struct {
	t      *testing.T
	o      Options
	out    *os.File
	next   int64
	inodes map[uint64]string
}

// encoded is about the size of the least Directory with these entries.
func encoded(entries []Entry) (n int64) {
	for i := range entries {
		n += 6 + int64(len(entries[i].Name)+len(entries[i].Target))
		if entries[i].Target == "" {
			n += 68
		}
	}
	return n
}

func (w *regions) take(d Entry) (at int64) {
	at = w.next
	w.next += RegionBytes(encoded(d.Entries), maxPath)
	return at
}

// write writes the directory d and everything below it, the last first.
func (w *regions) write(d Entry, at int64, parent uint32, path string) {
	r := &Region{At: at, Parent: parent, Dir: d, NIDs: make([]uint32, len(d.Entries))}
	for i, e := range d.Entries {
		if fileType(e.Mode) == typeDir {
			r.NIDs[i] = NID(w.take(e))
		}
	}
	for i := len(d.Entries) - 1; i >= 0; i-- {
		if e := d.Entries[i]; fileType(e.Mode) == typeDir {
			w.write(e, RegionAt(uint64(r.NIDs[i])), NID(at), filepath.Join(path, e.Name))
		}
	}
	b, err := r.Bytes(w.o)
	if err != nil {
		w.t.Fatal(err)
	}
	if most := RegionBytes(encoded(d.Entries), maxPath); int64(len(b)) > most || len(b)%BlockSize != 0 {
		w.t.Errorf("%q: a region of %d bytes, at most %d were expected", path, len(b), most)
	}
	if _, err := w.out.WriteAt(b, at); err != nil {
		w.t.Fatal(err)
	}
	w.inodes[uint64(NID(at))] = path
	for i, e := range d.Entries {
		if fileType(e.Mode) != typeDir {
			w.inodes[uint64(r.NIDs[i])] = filepath.Join(path, e.Name)
		}
	}
}

// TestRegions mounts images that were written directory by directory, and compares them with their
// trees.
func TestRegions(t *testing.T) {
	long := strings.Repeat("x", 255)
	limits := dir("", link("block", strings.Repeat("t", maxTarget)),
		link("inline", strings.Repeat("t", blockSize-compactSize)),
		link("next", strings.Repeat("t", 3000)), file(long, 1, "/"+strings.Repeat("y", maxPath-1)), file("empty", 0, ""),
		link("two", strings.Repeat("t", 3000)), dir("large", many(900)...), dir("none"), dir("exact", many(160)...),
		opaque(dir("large and opaque", many(900)...)), opaque(dir("opaque", many(20)...)))
	trees := []Entry{dir(""), limits}
	for seed := range uint64(6) {
		r := &randomTree{rand.New(rand.NewPCG(seed, 3)), 2000}
		trees = append(trees, r.dir("", 0))
	}
	for i := range trees {
		o := Options{Epoch: epoch, UID: uint32(i % 2 * 100_000), UUID: [16]byte{byte(i)}}
		root := &trees[i]
		root.Mode = unix.S_IFDIR | 0o755
		out, err := os.Create(filepath.Join(t.TempDir(), "image"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		head, err := Head(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.WriteAt(head, 0); err != nil {
			t.Fatal(err)
		}
		w := &regions{t: t, o: o, out: out, next: BlockSize, inodes: map[uint64]string{}}
		w.write(*root, w.take(*root), NID(BlockSize), "")
		seen := &walk{t: t, o: o, root: mount(t, out.Name(), "erofs", unix.MS_RDONLY, ""), inodes: map[uint64]string{}}
		seen.check(root, "")
		for nid, path := range seen.inodes {
			if w.inodes[nid] != path {
				t.Errorf("tree %d: inode %d is %q, and was written as %q", i, nid, path, w.inodes[nid])
			}
		}
		if len(seen.inodes) != len(w.inodes) || len(seen.inodes) != seen.seen {
			t.Errorf("tree %d: %d inodes for %d paths, %d were written", i, len(seen.inodes), seen.seen, len(w.inodes))
		}
	}
}

func many(n int) (entries []Entry) {
	for i := range n {
		entries = append(entries, file(fmt.Sprintf("%s%04d", strings.Repeat("n", i%200), i), 1, "/x"))
	}
	return entries
}

func TestRegionRefuses(t *testing.T) {
	for name, r := range map[string]Region{
		"the superblock's place": {At: 0, Dir: dir("")},
		"within a block":         {At: 100, Dir: dir("")},
		"beyond the format":      {At: MaxRegionAt, Dir: dir("")},
		"a file":                 {At: BlockSize, Dir: file("", 0, "")},
		"no name":                {At: BlockSize, Dir: dir("", file("", 0, ""))},
		"a name twice":           {At: BlockSize, Dir: dir("", file("a", 0, ""), file("a", 0, ""))},
		"no data":                {At: BlockSize, Dir: dir("", file("a", 1, ""))},
		"no target":              {At: BlockSize, Dir: dir("", link("a", ""))},
		"a device":               {At: BlockSize, Dir: dir("", Entry{Name: "a", Mode: unix.S_IFCHR})},
	} {
		r.NIDs = make([]uint32, len(r.Dir.Entries))
		if _, err := r.Bytes(Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestAppendRegion appends a region to memory that had other bytes.
func TestAppendRegion(t *testing.T) {
	d := dir("", append(many(300), link("target", "somewhere"), file("without", 0, ""))...)
	slices.SortFunc(d.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	r := Region{At: BlockSize, Parent: NID(BlockSize), Dir: d, NIDs: make([]uint32, len(d.Entries))}
	want, err := r.Bytes(Options{})
	if err != nil {
		t.Fatal(err)
	}
	used := bytes.Repeat([]byte{0xa5}, 2*len(want))
	got, err := r.Append(used[:1], Options{})
	if err != nil || got[0] != 0xa5 || !bytes.Equal(got[1:], want) {
		t.Errorf("appended to used memory it differs, %v", err)
	}
	r.Dir.Mode = unix.S_IFREG
	if got, err := r.Append(used[:1], Options{}); err == nil || len(got) != 1 {
		t.Errorf("after an error there are %d bytes, %v", len(got), err)
	}
}

// TestBehind has targets of symlinks that just fit behind their inodes, and such that do not.
func TestBehind(t *testing.T) {
	for _, c := range []struct {
		end, target, want int64
		inline            bool
	}{
		{64, 1, 64, true},
		{64, blockSize - 64, 64, true},
		{64, blockSize - 63, blockSize, false},
		{blockSize, 1, blockSize, false}, // the inode is in the block before
		{blockSize + 32, blockSize - 32, blockSize + 32, true},
		{blockSize + 32, blockSize - 31, 2 * blockSize, false},
	} {
		if at, inline := behind(c.end, c.target); at != c.want || inline != c.inline {
			t.Errorf("%d bytes behind %d: at %d, inline %t; want %d, %t", c.target, c.end, at, inline, c.want, c.inline)
		}
	}
}
