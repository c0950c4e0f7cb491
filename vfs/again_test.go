package vfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestRootAfterRoot: what random actions leave behind shows in no root of another one, which is as on
// a worker that has had no action. Folders are used again.
func TestRootAfterRoot(t *testing.T) {
	const seed, roots = 20, 150
	random := rand.New(rand.NewPCG(seed, seed))
	src := vfstest.NewSource(t)
	worn, mounted := openFS(t, Options{CopyBytes: copyBytes}), openFS(t, Options{})
	owners := []*Owner{nil, {UID: 12345, GID: 54321}}
	for i := range roots {
		spec := RootSpec{Source: src, Owner: owners[random.IntN(2)], Name: fmt.Sprint(i)}
		var inputs []string
		for range 1 + random.IntN(8) {
			inputs = append(inputs, randomPath(random)+"/"+fmt.Sprint("file", random.IntN(2)))
		}
		slices.Sort(inputs)
		spec.Digest = src.Tree(t, slices.Compact(inputs)...)
		for dir := randomPath(random); dir != "."; dir = path.Dir(dir) {
			spec.Folders = slices.Insert(spec.Folders, 0, dir)
		}
		src.Know(t, spec.Digest)
		r := openCopied(t, worn, spec)
		want := shownWith(t, openRoot(t, mounted, spec), spec.Folders)
		if got := shownWith(t, r, spec.Folders); !slices.Equal(got, want) {
			t.Fatalf("root %d, folders %q:\n%s\nwant:\n%s", i, spec.Folders, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		disturb(t, random, r.Path())
		if random.IntN(10) > 0 {
			r.Vacated()
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if random.IntN(3) > 0 {
			worn.plain.stripping.Wait()
		}
	}
	if n := worn.plain.made; n > roots*2/3 {
		t.Errorf("%d folders were made for %d roots", n, roots)
	}
}

// randomPath returns the path of one of a few folders.
func randomPath(random *rand.Rand) string {
	p := fmt.Sprint("dir", random.IntN(3))
	for range random.IntN(4) {
		p += fmt.Sprint("/dir", random.IntN(3))
	}
	return p
}

// shownWith makes these folders in a root, and returns what it shows, but for the times of folders that
// are not inputs.
func shownWith(t *testing.T, r *Root, folders []string) []string {
	t.Helper()
	top, err := os.Open(r.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	for _, dir := range folders {
		if err := r.owner.Act(func() error { return unix.Mkdirat(int(top.Fd()), dir, 0o755) }); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	list := describeFiles(t, r.Path())
	for i, line := range list {
		dir, _, _ := strings.Cut(line, " ")
		_, input := r.Unchanged(dir)
		if !input && (slices.Contains(folders, dir) || slices.ContainsFunc(folders, func(f string) bool { return path.Dir(f) == dir })) {
			list[i] = regexp.MustCompile(` time .*`).ReplaceAllString(line, "")
		}
		if n, err := unix.Llistxattr(filepath.Join(r.Path(), dir), nil); isCopied(r) && (n > 0 || err != nil) {
			t.Errorf("%s has attributes: %d bytes, %v", dir, n, err)
		}
	}
	return list
}

// disturb does to a root what actions may do.
func disturb(t *testing.T, random *rand.Rand, root string) {
	t.Helper()
	for range random.IntN(6) {
		dir := filepath.Join(root, randomPath(random))
		var st unix.Stat_t
		if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		other := filepath.Join(root, randomPath(random))
		var err error
		switch random.IntN(10) {
		case 0:
			err = os.RemoveAll(dir)
		case 1:
			err = os.Chmod(dir, os.FileMode(random.IntN(0o1000)))
		case 2:
			err = unix.Setxattr(dir, "user.mark", []byte("here"), 0)
		case 3:
			err = os.Rename(dir, other)
		case 4:
			err = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
		case 5:
			err = errors.Join(os.RemoveAll(dir), os.Symlink("/etc", dir))
		case 6:
			err = errors.Join(os.RemoveAll(dir), os.WriteFile(dir, []byte("file"), 0o600))
		case 7:
			err = os.WriteFile(filepath.Join(dir, "file1"), []byte("other"), 0o666)
		case 8:
			err = os.MkdirAll(filepath.Join(dir, "more/dir0/dir1"), 0o700)
		case 9:
			err = os.Lchown(dir, 4711, 4711)
		}
		for _, allowed := range []error{os.ErrNotExist, os.ErrExist, unix.EINVAL, unix.ENOTEMPTY, unix.ENOTDIR, unix.EISDIR} {
			if errors.Is(err, allowed) {
				err = nil
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
