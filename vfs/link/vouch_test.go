package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// TestWhoIsBlamed: a change of a copy below an overlay counts as damage, whenever it is found. A
// change that a command which sees the copy itself may have made does not.
func TestWhoIsBlamed(t *testing.T) {
	for _, bare := range []bool{false, true} {
		for _, at := range []string{"the end of the root", "the next root"} {
			t.Run(fmt.Sprint(bare, " ", at), func(t *testing.T) {
				var told []string
				f := openLinkFarm(t, linkFarmOptions{Bare: bare, Damaged: func(d digest.Digest, file string) {
					told = append(told, d.String()+" "+file)
				}})
				src := vfstest.NewSource(t)
				spec := rootSpec{Digest: src.Tree(t, "file"), Source: src}
				r := openRoot(t, f, spec)
				var l *sharedFile
				r.each(func(one *sharedFile) bool {
					l = one
					return true
				})
				var want []string
				if !bare {
					want = []string{l.key.digest.String() + " " + l.path}
				}
				if at == "the next root" {
					if err := os.WriteFile(l.path, []byte("another text"), 0); err != nil {
						t.Fatal(err)
					}
					openRoot(t, f, spec)
				} else if err := errors.Join(os.WriteFile(l.path, []byte("CONTENT of file"), 0), os.Chtimes(l.path, oldTime, oldTime)); err != nil {
					t.Fatal(err)
				}
				if err := r.vouch(t.Context()); !errors.Is(err, vouch.ErrDamaged) {
					t.Errorf("vouched for: %v", err)
				}
				if !slices.Equal(told, want) {
					t.Errorf("told %q, want %q", told, want)
				}
			})
		}
	}
}

// TestCopiesAreReadInTime: the targets of hard links are verified when their time has come, not
// earlier, also in a kept tree.
func TestCopiesAreReadInTime(t *testing.T) {
	bothWays(t, func(t *testing.T, f *linkFarm) {
		src := vfstest.NewSource(t)
		for i := range 3 { // the second one keeps a tree
			r := openRoot(t, f, rootSpec{Digest: sdk(t, src, fmt.Sprint(i)), Source: src})
			var copies []*sharedFile
			r.each(func(l *sharedFile) bool {
				copies = append(copies, l)
				return true
			})
			if len(copies) != 2*sdkFiles+1 {
				t.Fatalf("%d copies", len(copies))
			}
			before := time.Now()
			vouch := func() (read int) {
				t.Helper()
				if err := r.vouch(t.Context()); err != nil {
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
				l.said.Right(before.Add(-2 * aDay))
			}
			if n := vouch(); n != len(copies) {
				t.Errorf("%d of %d copies were read", n, len(copies))
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRottenCopies damages a copy while roots show it.
func TestRottenCopies(t *testing.T) {
	bothWays(t, func(t *testing.T, f *linkFarm) {
		f.vouched = -1
		src := vfstest.NewSource(t)
		lib := "a/sdk/lib/7"
		for i := range 6 {
			r := openRoot(t, f, rootSpec{Digest: sdk(t, src, fmt.Sprint(i)), Source: src})
			if got := string(mustRead(t, filepath.Join(r.path(), lib))); got != "content of 7" {
				t.Errorf("root %d reads %q", i, got)
			}
			rots := i%2 == 1
			if rots {
				var at []string
				r.each(func(l *sharedFile) bool {
					if l.key.digest == src.Find(t, r.root, lib) && l.key.perm == 0o555 {
						at = append(at, l.path)
					}
					return true
				})
				if len(at) != 1 {
					t.Fatalf("copies: %q", at)
				}
				rot(t, at[0])
			}
			if err := r.vouch(t.Context()); errors.Is(err, vouch.ErrDamaged) != rots || !rots && err != nil {
				t.Errorf("root %d: %v", i, err)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestWrittenCopies writes to a copy while a root shows it. That must be detected at once, whenever
// the copy was last verified.
func TestWrittenCopies(t *testing.T) {
	bothWays(t, func(t *testing.T, f *linkFarm) {
		src := vfstest.NewSource(t)
		for i := range 4 { // the second one keeps a tree
			r := openRoot(t, f, rootSpec{Digest: sdk(t, src, fmt.Sprint(i)), Source: src})
			var path string
			r.each(func(l *sharedFile) bool {
				path = l.path
				return false
			})
			b := mustRead(t, path)
			b[0] ^= 1
			if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, b, 0)); err != nil {
				t.Fatal(err)
			}
			if err := r.vouch(t.Context()); !errors.Is(err, vouch.ErrDamaged) {
				t.Errorf("root %d: %v", i, err)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRestoredCopies writes to a copy and restores its times, while a root shows it and while none
// does. The change time must reveal it, and changes that roots make to their links must not count.
func TestRestoredCopies(t *testing.T) {
	bothWays(t, func(t *testing.T, f *linkFarm) {
		src := vfstest.NewSource(t)
		for i := range 8 { // the second one keeps a tree
			r := openRoot(t, f, rootSpec{Digest: sdk(t, src, fmt.Sprint(i)), Source: src})
			var lib *sharedFile
			r.each(func(l *sharedFile) bool {
				if l.doubtful() {
					t.Errorf("root %d: the copy at %s is doubted", i, l.path)
				}
				if l.key.digest == src.Find(t, r.root, "a/sdk/lib/7") && l.key.perm == 0o555 {
					lib = l
				}
				return true
			})
			written := i >= 4
			if i%2 == 1 {
				if err := r.close(); err != nil { // with its links, which is a change
					t.Fatal(err)
				}
				f.trash.Wait()
			}
			if written {
				rot(t, lib.path)
			}
			if i%2 == 1 {
				own := fmt.Sprint(i, "again")
				r = openRoot(t, f, rootSpec{Digest: sdk(t, src, own), Source: src})
			}
			if err := r.vouch(t.Context()); errors.Is(err, vouch.ErrDamaged) != written || !written && err != nil {
				t.Errorf("root %d: %v", i, err)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			f.trash.Wait()
		}
	})
}

// A looking is a context whose users are looked at.
type looking struct {
	context.Context
	look func()
}

func (l looking) Err() error {
	l.look()
	return l.Context.Err()
}

// TestCopiesInDoubtWhileTheyAreRead: as long as one root reads a copy that was changed, no other
// one relies on what was known of it before.
func TestCopiesInDoubtWhileTheyAreRead(t *testing.T) {
	f := openLinkFarm(t, linkFarmOptions{})
	src := vfstest.NewSource(t)
	r := openRoot(t, f, rootSpec{Digest: sdk(t, src, "own"), Source: src})
	var lib *sharedFile
	r.each(func(l *sharedFile) bool {
		lib = l
		return false
	})
	rot(t, lib.path)
	looks := 0
	err := lib.check(looking{t.Context(), func() {
		if looks++; !lib.doubtful() {
			t.Error("the copy is not doubted while it is read")
		}
	}})
	if !errors.Is(err, vouch.ErrDamaged) || looks == 0 {
		t.Errorf("%v, after %d looks", err, looks)
	}
	rot(t, lib.path) // it is right again
	if err := lib.check(t.Context()); err != nil || lib.doubtful() {
		t.Errorf("%v, doubted: %t", err, lib.doubtful())
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

// TestCopiesThatAreRightAgain writes to a copy and restores its content while a root shows it. It
// is unknown what was read meanwhile. Later roots are not affected.
func TestCopiesThatAreRightAgain(t *testing.T) {
	f := openLinkFarm(t, linkFarmOptions{})
	src := vfstest.NewSource(t)
	for i := range 4 { // the second one keeps a tree
		r := openRoot(t, f, rootSpec{Digest: sdk(t, src, fmt.Sprint("own", i)), Source: src})
		if err := r.vouch(t.Context()); err != nil {
			t.Errorf("root %d, before: %v", i, err)
		}
		for _, lib := range []string{"a/sdk/lib/7", fmt.Sprint("a/own", i)} {
			r.each(func(l *sharedFile) bool {
				if l.key.digest == src.Find(t, r.root, lib) {
					rot(t, l.path)
					rot(t, l.path)
				}
				return true
			})
		}
		for range 2 {
			if err := r.vouch(t.Context()); !errors.Is(err, vouch.ErrDamaged) {
				t.Errorf("root %d: %v", i, err)
			}
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTouchedCopies: a copy of which only harmless attributes were changed is verified once, and
// found right. Below an overlay not even that is allowed.
func TestTouchedCopies(t *testing.T) {
	bothWays(t, func(t *testing.T, f *linkFarm) {
		src := vfstest.NewSource(t)
		r := openRoot(t, f, rootSpec{Digest: sdk(t, src, "own"), Source: src})
		var l *sharedFile
		r.each(func(s *sharedFile) bool {
			l = s
			return false
		})
		mode, before := os.FileMode(l.as.mode&0o777), time.Now()
		if err := errors.Join(os.Chmod(l.path, 0o600), os.Chmod(l.path, mode)); err != nil {
			t.Fatal(err)
		}
		err := r.vouch(t.Context())
		if errors.Is(err, vouch.ErrDamaged) == f.bare || f.bare && err != nil || !l.said.Since(before) || l.doubtful() {
			t.Errorf("%v; it was read: %t, it is doubted: %t", err, l.said.Since(before), l.doubtful())
		}
		if err := r.bare.Intact(); err != nil {
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
	bothWays(t, func(t *testing.T, f *linkFarm) {
		src := &verifiedSource{Source: vfstest.NewSource(t), right: "content of file"}
		root := src.Tree(t, "file", "other")
		d := src.Find(t, root, "file")
		rot(t, src.Blobs[d])
		r := openRoot(t, f, rootSpec{Digest: root, Source: src})
		if got := string(mustRead(t, filepath.Join(r.path(), "file"))); got != "content of file" || !slices.Equal(src.asked, []digest.Digest{d}) {
			t.Errorf("reads %q; looked at %v", got, src.asked)
		}
		src.right = ""
		root = src.Tree(t, "file!")
		rot(t, src.Blobs[d])
		for _, source := range []Source{src, src.Source} {
			_, err := f.newRoot(t.Context(), rootSpec{Digest: root, Source: source})
			if !errors.Is(err, vouch.ErrDamaged) || !strings.Contains(err.Error(), d.String()) {
				t.Errorf("a root of a wrong blob: %v", err)
			}
		}
	})
}

// TestNamesThatOthersChange has another process put other files under the names of inputs, in the
// folder of a root and in a shared tree. No root that shows them may be vouched for, and the next
// one must show the right files.
func TestNamesThatOthersChange(t *testing.T) {
	replace := func(path string) error {
		return errors.Join(os.WriteFile(path+"~", []byte("content of ?"), 0o444), os.Rename(path+"~", path))
	}
	for name, c := range map[string]struct {
		at     string
		change func(path string) error
	}{
		"a file of the root": {"a/own3", replace},
		"a file more":        {"more", func(path string) error { return os.WriteFile(path, nil, 0o444) }},
		"a shared file":      {"a/sdk/lib/7!", replace},
		"a shared symlink": {"a/sdk/to", func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink("lib", path))
		}},
		"a shared folder": {"a/sdk/lib", func(path string) error {
			return errors.Join(os.Rename(path, path+"~"), os.Mkdir(path, 0o755))
		}},
		"a file beside a shared folder": {"a/sdk.more", func(path string) error { return os.WriteFile(path, nil, 0o444) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := openLinkFarm(t, linkFarmOptions{})
			src := vfstest.NewSource(t)
			for i := range 5 { // the second one keeps a tree
				r := openRoot(t, f, rootSpec{Digest: sdk(t, src, fmt.Sprint("own", i)), Source: src})
				if n := len(vfstest.Walk(t, r.path())); n != 2*sdkFiles+8 {
					t.Errorf("root %d has %d entries", i, n)
				}
				spoilt := i == 3
				if spoilt {
					dir := r.own.base
					if strings.HasPrefix(c.at, "a/sdk") {
						dir = r.kept[0].dir
					}
					if err := c.change(filepath.Join(dir, c.at)); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.vouch(t.Context()); errors.Is(err, vouch.ErrDamaged) != spoilt || !spoilt && err != nil {
					t.Errorf("root %d: %v", i, err)
				}
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
