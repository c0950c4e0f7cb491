package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestOwnerOfARoot: the owner of a root can create, replace and remove files in it. Other users
// cannot.
func TestOwnerOfARoot(t *testing.T) {
	const owner, other = 12345, 12346
	for name, method := range map[string]Method{"FUSE": FUSE, "hard links": HardLink} {
		t.Run(name, func(t *testing.T) {
			f := openFS(t, Options{Method: method, Owner: &Owner{UID: owner, GID: owner}})
			src := vfstest.NewSource(t)
			digest := src.Tree(t, "dir/file")
			for i, c := range []struct {
				owner *Owner
				uid   int
				may   bool
			}{{nil, owner, true}, {nil, other, false}, {&Owner{UID: other}, other, true}, {&Owner{UID: other}, owner, false}} {
				r := openRoot(t, f, RootSpec{Name: "r" + string(rune('0'+i)), Digest: digest, Source: src, Owner: c.owner})
				in, err := os.OpenRoot(r.Path())
				if err != nil {
					t.Fatal(err)
				}
				defer in.Close()
				vfstest.AsUser(t, c.uid, func() {
					for _, err := range []error{
						in.Mkdir("made", 0o755), in.Remove("dir/file"), in.WriteFile("dir/file", []byte("new"), 0o644),
					} {
						if (err == nil) != c.may {
							t.Errorf("case %d: %v", i, err)
						}
					}
				})
			}
			r := openRoot(t, f, RootSpec{Name: "plain", Digest: digest, Source: src})
			info, err := os.Stat(filepath.Join(r.Path(), "dir"))
			if err != nil {
				t.Fatal(err)
			}
			if st := info.Sys().(*syscall.Stat_t); st.Uid != owner || st.Gid != owner {
				t.Errorf("a directory belongs to %d:%d", st.Uid, st.Gid)
			}
		})
	}
}

// TestOthersStayOut: only the worker, and the group of a root's owner, can reach a root, whoever it
// is for and wherever the action writes.
func TestOthersStayOut(t *testing.T) {
	owners := map[string]*Owner{"the worker": nil}
	if os.Getuid() == 0 {
		owners["another user"] = &Owner{UID: 70001, GID: 70001}
	}
	for _, method := range []Method{FUSE, HardLink} {
		for _, memory := range []int64{0, 1 << 20} {
			f := openFS(t, Options{Method: method, UpperMemory: memory})
			for name, owner := range owners {
				src := vfstest.NewSource(t)
				r := openRoot(t, f, RootSpec{Name: "root" + fmt.Sprint(len(name)), Digest: src.Tree(t, "file"), Source: src, Owner: owner})
				for _, base := range []string{r.Path(), filepath.Join(f.upperDir, "root"+fmt.Sprint(len(name)), "x")} {
					closed := false
					for dir := filepath.Dir(base); dir != f.mountDir && dir != f.upperDir && dir != "/"; dir = filepath.Dir(dir) {
						info, err := os.Stat(dir)
						closed = closed || errors.Is(err, os.ErrNotExist) || err == nil && info.Mode()&0o007 == 0
					}
					if !closed {
						t.Errorf("%s, %d bytes of memory, for %s: others get to %s", method, memory, name, base)
					}
				}
			}
		}
	}
}
