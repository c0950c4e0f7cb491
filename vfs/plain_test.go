package vfs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// openPlain makes a root without inputs.
func openPlain(t *testing.T, f *FS, name string, owner *Owner) *Root {
	t.Helper()
	return openRoot(t, f, RootSpec{Name: name, Digest: digest.SHA256.Empty(), Source: vfstest.NewSource(t), Owner: owner})
}

// TestPlainRoot: a root without inputs is an empty folder, whatever happened in the previous one.
func TestPlainRoot(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(dir string) error
		stays  bool // a process may still be using it
		reused bool
	}{
		"nothing":     {do: func(string) error { return nil }, reused: true},
		"looked":      {do: func(dir string) error { _, err := os.ReadDir(dir); return err }, reused: true},
		"not left":    {do: func(string) error { return nil }, stays: true},
		"made a file": {do: func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), nil, 0o600) }, reused: true},
		"made a mess": {do: func(dir string) error { return os.MkdirAll(filepath.Join(dir, "a/b"), 0o700) }, reused: true},
		"came and went": {do: func(dir string) error {
			if err := os.Mkdir(filepath.Join(dir, "x"), 0o700); err != nil {
				return err
			}
			return os.Remove(filepath.Join(dir, "x"))
		}, reused: true},
		"changed mode":  {do: func(dir string) error { return os.Chmod(dir, 0o777|os.ModeSetgid) }, reused: true},
		"changed owner": {do: func(dir string) error { return os.Chown(dir, 1, 1) }},
		"changed time":  {do: func(dir string) error { return os.Chtimes(dir, time.Unix(1, 0), time.Unix(1, 0)) }, reused: true},
		"left a mark":   {do: func(dir string) error { return unix.Setxattr(dir, "user.mark", []byte("here"), 0) }},
		"went":          {do: os.Remove},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFS(t, Options{})
			if f.plain.drop { // on this file system
				c.reused = name == "nothing" || name == "looked"
			}
			r := openPlain(t, f, "one", nil)
			first := r.Path()
			if err := c.do(r.Path()); err != nil {
				t.Fatal(err)
			}
			if !c.stays {
				r.Vacated()
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			f.plain.stripping.Wait()
			if got := len(f.plain.spare) == 1; got != c.reused {
				t.Errorf("kept for later: %v", got)
			}
			next := openPlain(t, f, "two", nil)
			if left, err := os.ReadDir(next.Path()); err != nil || len(left) > 0 {
				t.Errorf("the next root holds %v, %v", left, err)
			}
			if n, err := unix.Listxattr(next.Path(), nil); err != nil || n > 0 {
				t.Errorf("the next root has %d bytes of attributes' names, %v", n, err)
			}
			info, err := os.Stat(next.Path())
			if err != nil || info.Mode() != os.ModeDir|0o755 || info.Sys().(*syscall.Stat_t).Uid != f.owner.UID {
				t.Errorf("the next root is %v, %v", info, err)
			}
			if (next.Path() == first) != c.reused {
				t.Errorf("one root was at %s, the next is at %s", first, next.Path())
			}
		})
	}
}

// TestPlainRootOfAnother: an action never gets a folder of another owner.
func TestPlainRootOfAnother(t *testing.T) {
	f := openFS(t, Options{})
	for i, owner := range []*Owner{nil, {UID: 12345, GID: 12345}, nil, {UID: 12345, GID: 12345}} {
		want := f.owner
		if owner != nil {
			want = *owner
		}
		r := openPlain(t, f, "r"+string(rune('0'+i)), owner)
		info, err := os.Stat(r.Path())
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); (Owner{UID: st.Uid, GID: st.Gid}) != want {
			t.Errorf("root %d belongs to %d:%d", i, st.Uid, st.Gid)
		}
		around, err := os.Stat(filepath.Dir(r.Path()))
		if err != nil {
			t.Fatal(err)
		}
		if st := around.Sys().(*syscall.Stat_t); owner != nil && (around.Mode().Perm() != 0o710 || st.Gid != want.GID) {
			t.Errorf("root %d is open to others: %v of group %d around it", i, around.Mode(), st.Gid)
		}
		r.Vacated()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f.plain.stripping.Wait()
	if len(f.plain.spare) != 2 {
		t.Errorf("%d folders are kept, of two owners", len(f.plain.spare))
	}
}

// TestPlainRootOutputs: files in a root without inputs can be moved away.
func TestPlainRootOutputs(t *testing.T) {
	f := openFS(t, Options{})
	r := openPlain(t, f, "one", nil)
	file := filepath.Join(r.Path(), "out")
	if err := os.WriteFile(file, []byte("made"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, ok := r.Written("out"); !ok || got != file {
		t.Errorf("written: %q, %v", got, ok)
	}
	if _, ok := r.Unchanged("out"); ok {
		t.Error("what was made is an unchanged input")
	}
	if n := r.WrittenBytes(1 << 30); n <= 0 {
		t.Errorf("%d bytes were written", n)
	}
	if left, err := mounts.Below(f.points.dir); err != nil || len(left) > 0 {
		t.Errorf("there are mounts: %v, %v", left, err)
	}
}
