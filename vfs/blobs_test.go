package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// fakeKernel gives out backing ids.
type fakeKernel struct {
	last int32
	live map[int32]bool
}

func (k *fakeKernel) table() *blobTable {
	k.live = map[int32]bool{}
	t := &blobTable{unregister: func(id int32) {
		if !k.live[id] {
			panic("unregistered twice")
		}
		delete(k.live, id)
	}}
	t.init()
	return t
}

func (k *fakeKernel) register(*os.File) (int32, bool) {
	k.last++
	k.live[k.last] = true
	return k.last, true
}

func refuse(*os.File) (int32, bool) { return 0, false }

func tempFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func nth(i int) digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, i)) }

func TestBackingIDs(t *testing.T) {
	var k fakeKernel
	table := k.table()
	file := tempFile(t)
	b := table.add(nth(0), file, k.register)
	if file.Close() == nil {
		t.Error("the descriptor is still open")
	}
	if again := table.use(nth(0)); again != b {
		t.Error("the same blob has two ids")
	}
	if raced := table.add(nth(0), tempFile(t), k.register); raced != b || len(k.live) != 1 {
		t.Errorf("a second id is kept: %v", k.live)
	}
	handles := []uint64{table.handle(b), table.handle(b), table.handle(b)}
	for _, h := range handles {
		table.release(h)
	}
	table.release(handles[0]) // unknown by now
	if !k.live[b.id] {
		t.Error("an idle id was given back at once")
	}
	held := table.handle(table.use(nth(0)))
	for i := 1; i <= maxIdleBackings+10; i++ {
		table.release(table.handle(table.add(nth(i), tempFile(t), k.register)))
	}
	if len(k.live) != maxIdleBackings+1 || !k.live[b.id] {
		t.Errorf("%d ids are live; the one in use: %t", len(k.live), k.live[b.id])
	}
	if table.use(nth(10)) != nil {
		t.Error("an id that was used long ago is kept")
	}
	oldest := table.use(nth(11))
	if oldest == nil {
		t.Fatal("not the least recently used id went")
	}
	table.release(table.handle(oldest))
	table.release(held)
	if !k.live[b.id] || len(k.live) != maxIdleBackings {
		t.Errorf("%d ids are live; the one used last: %t", len(k.live), k.live[b.id])
	}
}

func TestDescriptorsWithoutPassthrough(t *testing.T) {
	var k fakeKernel
	table := k.table()
	file := tempFile(t)
	b := table.add(nth(0), file, refuse)
	other := tempFile(t)
	if table.add(nth(0), other, refuse) != b || other.Close() == nil {
		t.Error("the descriptor of the slower access is kept")
	}
	one, two := table.handle(b), table.handle(b)
	table.release(one)
	if table.at(one) != nil || table.at(two) != b {
		t.Error("handles are mixed up")
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("closed while in use: %v", err)
	}
	table.release(two)
	if file.Close() == nil {
		t.Error("the descriptor is open after its last use")
	}
	if table.use(nth(0)) != nil {
		t.Error("a closed blob is still there")
	}
	left := tempFile(t)
	table.add(nth(1), left, refuse)
	table.closeFiles()
	if left.Close() == nil {
		t.Error("closing the root left a descriptor open")
	}
}

// TestManyOpensOfOneBlob would break the kernel's rule of one backing id for an
// open file, if the table gave out two.
func TestManyOpensOfOneBlob(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := newFakeSource(t)
		root := src.tree(t, "a/file", "b/file", "c/file")
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		var g errgroup.Group
		for i := range 30 {
			g.Go(func() error {
				for range 20 {
					p := filepath.Join(r.Path(), string(rune('a'+i%3)), "file")
					got, err := os.ReadFile(p)
					if err != nil || string(got) != "content of file" {
						return fmt.Errorf("%s: %q, %w", p, got, err)
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if n := openDescriptors(t, src.dir); f.Passthrough() && n > 0 {
			t.Errorf("%d descriptors of blobs are open", n)
		}
		waitUntil(t, "the releases", func() bool { return openDescriptors(t, src.dir) == 0 })
	})
}
