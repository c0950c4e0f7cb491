package vfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// told collects what OnBlob is told.
type told struct {
	mu    sync.Mutex
	blobs map[digest.Digest]int
}

func (c *told) hook(d digest.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blobs == nil {
		c.blobs = map[digest.Digest]int{}
	}
	c.blobs[d]++
}

// assert fails the test unless these are the blobs that were told.
func (c *told) assert(t *testing.T, want ...digest.Digest) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range want {
		if c.blobs[d] == 0 {
			t.Errorf("%s was not told", d)
		}
	}
	if len(c.blobs) != len(want) {
		t.Errorf("%d blobs were told, want %d", len(c.blobs), len(want))
	}
}

// TestBlobsAreTold: every way to the bytes of a blob is told, and no other blob.
func TestBlobsAreTold(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		root := src.Tree(t, "read", "copied", "moved", "returned", "truncated", "looked at", "dir/in")
		var c told
		r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnBlob: c.hook})
		at := func(p string) string { return filepath.Join(r.Path(), p) }
		c.assert(t)
		mustRead(t, at("read"))
		appendMore(t, at("copied"))
		_, err := os.Stat(at("looked at"))
		for _, err := range []error{err, os.Truncate(at("truncated"), 3), os.Rename(at("moved"), at("dir/moved"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := []digest.Digest{src.Find(t, root, "read"), src.Find(t, root, "copied"), src.Find(t, root, "truncated")}
		c.assert(t, want...)
		for _, p := range []string{"returned", "dir/moved"} {
			if _, ok := r.Unchanged(p); !ok {
				t.Errorf("%s is not unchanged", p)
			}
		}
		c.assert(t, append(want, src.Find(t, root, "returned"), src.Find(t, root, "moved"))...)
		if err := r.Vouch(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func appendMore(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString("more")
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// imageRoot is a root that shows an image, which f makes.
func imageRoot(t *testing.T, f *FS, src *vfstest.Source, name string, c *told) (*Root, digest.Digest) {
	t.Helper()
	root := src.Tree(t, toolchain("sdk")...)
	if f.Images() == 0 {
		learn(t, f, src, lookAround(t), root)
	}
	r := openRoot(t, f, RootSpec{Name: name, Digest: root, Source: src, OnBlob: c.hook})
	if len(r.grafts) != 1 {
		t.Fatalf("%d images in the root", len(r.grafts))
	}
	return r, root
}

// TestImageBlobsAreTold: Vouch returns when all that was opened has been told, and tells of all
// there are if nobody knows what was.
func TestImageBlobsAreTold(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	var c told
	r, root := imageRoot(t, f, src, "first", &c)
	mustRead(t, filepath.Join(r.Path(), "sdk/lib1/file1"))
	if err := r.Vouch(t.Context()); err != nil {
		t.Error(err)
	}
	c.assert(t, src.Find(t, root, "sdk/lib1/file1"))
	if r.blind.Load() {
		t.Error("something was lost")
	}
	f.watcher.lost()
	if err := r.Vouch(t.Context()); err != nil {
		t.Error(err)
	}
	if len(c.blobs) != minImageEntries+1 {
		t.Errorf("%d blobs were told, want all of them", len(c.blobs))
	}
}

// TestImageIsVouchedFor: an image that was written to is known to be wrong at once, else when its
// time has come; it is dropped, and every root that shows it hears of it.
func TestImageIsVouchedFor(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, img *image)
		wrong bool
	}{
		"untouched": {func(*testing.T, *image) {}, false},
		"old":       {func(_ *testing.T, img *image) { img.said.Right(time.Now().Add(-2 * defaultVerifyEvery)) }, false},
		"written to": {func(t *testing.T, img *image) {
			spoilImage(t, img)
		}, true},
		"rotten": {func(t *testing.T, img *image) {
			spoilImage(t, img)
			if err := img.markNow(); err != nil {
				t.Fatal(err)
			}
			img.said.Right(time.Now().Add(-2 * defaultVerifyEvery))
		}, true},
		"rotten not long ago": {func(t *testing.T, img *image) {
			spoilImage(t, img)
			if err := img.markNow(); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			src := vfstest.NewSource(t)
			f := openImageFS(t, src, nil)
			before, _ := imageRoot(t, f, src, "before", &told{})
			c.spoil(t, before.grafts[0].image)
			after, _ := imageRoot(t, f, src, "after", &told{})
			for _, r := range []*Root{after, before} {
				if err := r.Vouch(t.Context()); errors.Is(err, ErrDamaged) != c.wrong || !c.wrong && err != nil {
					t.Errorf("root %s: %v", r.spec.Name, err)
				}
			}
			if got := f.Images(); got != map[bool]int{true: 0, false: 1}[c.wrong] {
				t.Errorf("there are %d images", got)
			}
			if err := before.Close(); err != nil {
				t.Error(err)
			}
			if err := before.Vouch(t.Context()); err != nil {
				t.Errorf("a closed root: %v", err)
			}
		})
	}
}

// spoilImage flips a bit of what the image shows.
func spoilImage(t *testing.T, img *image) {
	t.Helper()
	var b [1]byte
	_, err := img.file.ReadAt(b[:], img.bytes/2)
	if err == nil {
		b[0] ^= 1
		_, err = img.file.WriteAt(b[:], img.bytes/2)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rotFile flips a bit of a file, and nothing that stat(2) shows but the change time.
func rotFile(t *testing.T, path string) {
	t.Helper()
	b := mustRead(t, path)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if err := errors.Join(os.WriteFile(path, b, 0), os.Chtimes(path, st.ModTime(), st.ModTime())); err != nil {
		t.Fatal(err)
	}
}

// TestCopiesAreReadInTime: what hard links lead to is read when its time has come, not before,
// also where it is in a kept tree.
func TestCopiesAreReadInTime(t *testing.T) {
	linkedWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		for i := range 3 { // the second one keeps a tree
			r := openRoot(t, f, RootSpec{Name: fmt.Sprint(i), Digest: sdk(t, src, fmt.Sprint(i)), Source: src})
			var copies []*sharedFile
			r.lower.(*linkLayer).copies(func(l *sharedFile) bool {
				copies = append(copies, l)
				return true
			})
			if len(copies) != 2*sdkFiles+1 {
				t.Fatalf("%d copies", len(copies))
			}
			before := time.Now()
			vouch := func() (read int) {
				t.Helper()
				if err := r.Vouch(t.Context()); err != nil {
					t.Error(err)
				}
				for _, l := range copies {
					if l.said.Since(before) {
						read++
					}
				}
				return read
			}
			if n := vouch(); n != 0 {
				t.Errorf("%d copies were read", n)
			}
			for _, l := range copies {
				l.said.Right(before.Add(-2 * defaultVerifyEvery))
			}
			if n := vouch(); n != len(copies) {
				t.Errorf("%d of %d copies were read", n, len(copies))
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRottenCopies has a copy go wrong while roots show it.
func TestRottenCopies(t *testing.T) {
	linkedWays(t, func(t *testing.T, f *FS) {
		f.verifyEvery = -1
		src := vfstest.NewSource(t)
		lib := "a/sdk/lib/7"
		for i := range 6 {
			r := openRoot(t, f, RootSpec{Name: fmt.Sprint(i), Digest: sdk(t, src, fmt.Sprint(i)), Source: src})
			if got := string(mustRead(t, filepath.Join(r.Path(), lib))); got != "content of 7" {
				t.Errorf("root %d reads %q", i, got)
			}
			rots := i%2 == 1
			if rots {
				var at []string
				r.lower.(*linkLayer).copies(func(l *sharedFile) bool {
					if l.key.digest == src.Find(t, r.spec.Digest, lib) && l.key.perm == 0o555 {
						at = append(at, l.path)
					}
					return true
				})
				if len(at) != 1 {
					t.Fatalf("copies: %q", at)
				}
				rotFile(t, at[0])
			}
			if err := r.Vouch(t.Context()); errors.Is(err, ErrDamaged) != rots || !rots && err != nil {
				t.Errorf("root %d: %v", i, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestWrittenCopies has a copy be written to while a root shows it: that is known at once, whenever the copy
// was read last.
func TestWrittenCopies(t *testing.T) {
	linkedWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		for i := range 4 { // the second one keeps a tree
			r := openRoot(t, f, RootSpec{Name: fmt.Sprint(i), Digest: sdk(t, src, fmt.Sprint(i)), Source: src})
			var path string
			r.lower.(*linkLayer).copies(func(l *sharedFile) bool {
				path = l.path
				return false
			})
			b := mustRead(t, path)
			b[0] ^= 1
			if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, b, 0)); err != nil {
				t.Fatal(err)
			}
			if err := r.Vouch(t.Context()); !errors.Is(err, ErrDamaged) {
				t.Errorf("root %d: %v", i, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRestoredCopies has a copy be written to and its times be set back, while a root shows it and while none does: its
// change time tells, and nothing that roots do to their links is taken for that.
func TestRestoredCopies(t *testing.T) {
	linkedWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		for i := range 8 { // the second one keeps a tree
			r := openRoot(t, f, RootSpec{Name: fmt.Sprint(i), Digest: sdk(t, src, fmt.Sprint(i)), Source: src})
			var lib *sharedFile
			r.lower.(*linkLayer).copies(func(l *sharedFile) bool {
				if l.doubtful() {
					t.Errorf("root %d: the copy at %s is doubted", i, l.path)
				}
				if l.key.digest == src.Find(t, r.spec.Digest, "a/sdk/lib/7") && l.key.perm == 0o555 {
					lib = l
				}
				return true
			})
			written := i >= 4
			if i%2 == 1 {
				if err := r.Close(); err != nil { // with its links, which is a change
					t.Fatal(err)
				}
				f.trash.Wait()
			}
			if written {
				rotFile(t, lib.path)
			}
			if i%2 == 1 {
				own := fmt.Sprint(i, "again")
				r = openRoot(t, f, RootSpec{Name: own, Digest: sdk(t, src, own), Source: src})
			}
			if err := r.Vouch(t.Context()); errors.Is(err, ErrDamaged) != written || !written && err != nil {
				t.Errorf("root %d: %v", i, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			f.trash.Wait()
		}
	})
}

// TestTouchedCopies: a copy of which somebody has changed only what does not matter is read once, and right.
func TestTouchedCopies(t *testing.T) {
	linkedWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		r := openRoot(t, f, RootSpec{Digest: sdk(t, src, "own"), Source: src})
		var l *sharedFile
		r.lower.(*linkLayer).copies(func(s *sharedFile) bool {
			l = s
			return false
		})
		mode, before := os.FileMode(l.as.mode&0o777), time.Now()
		if err := errors.Join(os.Chmod(l.path, 0o600), os.Chmod(l.path, mode)); err != nil {
			t.Fatal(err)
		}
		if err := r.Vouch(t.Context()); err != nil || !l.said.Since(before) || l.doubtful() {
			t.Errorf("%v; it was read: %t, it is doubted: %t", err, l.said.Since(before), l.doubtful())
		}
		if err := r.Intact(); err != nil {
			t.Error(err)
		}
	})
}

// verifiedSource can fetch a blob again that is wrong.
type verifiedSource struct {
	*vfstest.Source
	right string
	asked []digest.Digest
}

func (s *verifiedSource) Verify(_ context.Context, d digest.Digest) error {
	s.asked = append(s.asked, d)
	if s.right == "" {
		return nil
	}
	return os.WriteFile(s.Blobs[d], []byte(s.right), 0o444)
}

// TestBlobIsHashedWhileItIsCopied: a wrong one is fetched again, or fails the root.
func TestBlobIsHashedWhileItIsCopied(t *testing.T) {
	linkedWays(t, func(t *testing.T, f *FS) {
		src := &verifiedSource{Source: vfstest.NewSource(t), right: "content of file"}
		root := src.Tree(t, "file", "other")
		d := src.Find(t, root, "file")
		rotFile(t, src.Blobs[d])
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		if got := string(mustRead(t, filepath.Join(r.Path(), "file"))); got != "content of file" || !slices.Equal(src.asked, []digest.Digest{d}) {
			t.Errorf("reads %q; looked at %v", got, src.asked)
		}
		src.right = ""
		root = src.Tree(t, "file!")
		rotFile(t, src.Blobs[d])
		for _, source := range []Source{src, src.Source} {
			_, err := f.NewRoot(t.Context(), RootSpec{Name: "wrong", Digest: root, Source: source})
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), d.String()) {
				t.Errorf("a root of a wrong blob: %v", err)
			}
		}
	})
}
