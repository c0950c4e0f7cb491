package vfs

import (
	"errors"
	"fmt"
	"io/fs"
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
	there := 0
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
		for _, dir := range spec.Folders {
			if r.HasFolder(dir) {
				there++
			}
		}
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
	if n := worn.plain.made; (n > roots*2/3 || there == 0) && !worn.plain.drop {
		t.Errorf("%d folders were made for %d roots, and %d were there", n, roots, there)
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

// shownWith makes these folders in a root that may lack them, and returns what it shows, but for the times of folders that
// are not inputs.
func shownWith(t *testing.T, r *Root, folders []string) []string {
	t.Helper()
	top, err := os.Open(r.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	for _, dir := range folders {
		if r.HasFolder(dir) {
			continue
		}
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

// makeBelow makes the folder dir below a root, also where its path is longer than that of a system
// call.
func makeBelow(t *testing.T, root, dir string) {
	t.Helper()
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	for name := range strings.SplitSeq(dir, "/") {
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkdirat(at, name, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
		above := at
		at, err = unix.Openat(above, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		_ = unix.Close(above)
	}
	_ = unix.Close(at)
}

// leave ends a root whose folders may be used again.
func leave(t *testing.T, f *FS, r *Root) {
	t.Helper()
	r.Vacated()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	f.plain.stripping.Wait()
}

// TestFoldersLookNew: folders that an action gets have neither times nor modes that an earlier one gave
// them, and those in which it gets one look as if that were just made.
func TestFoldersLookNew(t *testing.T) {
	for name, inputs := range map[string][]string{
		"without inputs": nil,
		"with inputs":    {"in/deep/file", "in/other/file", "in/empty/"},
	} {
		t.Run(name, func(t *testing.T) {
			src := vfstest.NewSource(t)
			spec := RootSpec{Source: src, Digest: src.Tree(t, inputs...), Folders: []string{"in/deep/out", "in/deep/out/more", "out", "out/more"}}
			if inputs == nil {
				spec.Folders = spec.Folders[2:]
			}
			src.Know(t, spec.Digest)
			f := openFS(t, Options{CopyBytes: copyBytes})
			var seen []string // by each root
			for i := range 3 {
				spec.Name = fmt.Sprint(i)
				r := openRoot(t, f, spec)
				for _, dir := range spec.Folders {
					makeBelow(t, r.Path(), dir)
				}
				seen = append(seen, modesAndTimes(t, r.Path()))
				leave(t, f, r)
			}
			if f.plain.made != 1 && !f.plain.drop {
				t.Errorf("%d folders were made", f.plain.made)
			}
			if seen[1] != seen[0] || seen[2] != seen[0] {
				t.Errorf("the first root has\n%s\nthe next ones\n%s\nand\n%s", seen[0], seen[1], seen[2])
			}
		})
	}
}

// modesAndTimes describes the folders of a root, and whether their times are recent. Then it gives all
// of them the same time.
func modesAndTimes(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	const some = 946684799 // in 1999
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		var st unix.Stat_t
		err = unix.Lstat(p, &st)
		at, _ := filepath.Rel(root, p)
		fmt.Fprintf(&all, "%s %o", at, st.Mode)
		for _, at := range []unix.Timespec{st.Mtim, st.Atim} {
			if at.Sec > 1<<30 {
				all.WriteString(" recent")
			} else {
				fmt.Fprintf(&all, " %d", at.Nano())
			}
		}
		all.WriteString("\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		at := []unix.Timespec{{Sec: some, Nsec: 1}, {Sec: some, Nsec: 2}}
		if err != nil || !d.IsDir() {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, at, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestNoRootFailsForAnother: whatever folders an action asks for, and leaves behind, the next root
// appears.
func TestNoRootFailsForAnother(t *testing.T) {
	var deep []string
	for range 20 {
		deep = append(deep, path.Join(append(slices.Clone(deep[max(0, len(deep)-1):]), strings.Repeat("x", 250))...))
	}
	for name, c := range map[string]struct {
		before, next []string // folders
		spoil        bool     // somebody put a file into the spare folder
	}{
		"long path":       {before: deep, next: []string{"out"}},
		"no folders":      {before: deep},
		"long name":       {before: []string{"out"}, next: []string{strings.Repeat("n", 300)}},
		"somebody's file": {before: []string{"out"}, spoil: true},
		"all is renamed":  {before: []string{"a", "a/a", "b", "b/a"}, next: []string{"c", "c/b", "a", "a/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFS(t, Options{CopyBytes: copyBytes})
			src := vfstest.NewSource(t)
			for _, inputs := range [][]string{nil, {"file"}} {
				spec := RootSpec{Source: src, Digest: src.Tree(t, inputs...), Name: "before", Folders: c.before}
				src.Know(t, spec.Digest)
				r := openRoot(t, f, spec)
				for _, dir := range c.before {
					makeBelow(t, r.Path(), dir)
				}
				leave(t, f, r)
				if c.spoil && len(f.plain.spare) > 0 {
					if err := os.WriteFile(filepath.Join(f.plain.spare[0].Path(), "out/file"), nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				spec.Name, spec.Folders = "next", c.next
				r = openRoot(t, f, spec)
				if r.plain == nil {
					t.Error("it is mounted")
				}
				entries, err := os.ReadDir(r.Path())
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					if e.Name() != "file" && !slices.Contains(c.next, e.Name()) {
						t.Errorf("%.20s is there", e.Name())
					}
				}
				leave(t, f, r)
			}
		})
	}
}

// TestManyFoldersAreOthersBusiness: a root that wants few folders does not get those of one that had
// many, and the frames of one owner leave room for those of another.
func TestManyFoldersAreOthersBusiness(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	if f.plain.drop {
		t.Skip("not on this file system")
	}
	src := vfstest.NewSource(t)
	var many []string
	for i := range 10 * maxOthers {
		many = append(many, fmt.Sprint("out", i))
	}
	spec := RootSpec{Source: src, Digest: src.Tree(t), Owner: &Owner{UID: 12345, GID: 12345}, Folders: many}
	var roots []*Root
	for i := range maxSpare + 2 {
		spec.Name = fmt.Sprint(i)
		r := openRoot(t, f, spec)
		roots = append(roots, r)
		for _, dir := range many {
			makeBelow(t, r.Path(), dir)
			if err := os.Chown(filepath.Join(r.Path(), dir), 12345, 12345); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, r := range roots {
		leave(t, f, r)
	}
	if n := len(f.plain.spare); n != maxSpare {
		t.Errorf("%d frames are kept", n)
	}
	f.trash.Wait()
	if left, err := os.ReadDir(f.plain.dir); err != nil || len(left) != maxSpare {
		t.Errorf("%d of them are there, %v", len(left), err)
	}
	made := f.plain.made
	spec.Folders = []string{"out0"}
	for _, owner := range []*Owner{spec.Owner, nil} {
		spec.Owner, spec.Name = owner, "few"
		for range 2 {
			leave(t, f, openRoot(t, f, spec))
		}
	}
	if n := f.plain.made - made; n != 2 {
		t.Errorf("%d frames were made for two owners", n)
	}
}

// TestSymlinkToOutputs: a symlink among the inputs that leads to a folder for outputs leads nowhere
// before the caller has made that folder, also if an earlier root had it.
func TestSymlinkToOutputs(t *testing.T) {
	f, src := openFS(t, Options{CopyBytes: copyBytes}), vfstest.NewSource(t)
	for i := range 4 {
		spec := RootSpec{Source: src, Name: fmt.Sprint(i), Folders: []string{"out"}, Digest: src.Tree(t, "file")}
		if i%2 > 0 {
			spec.Digest = src.Tree(t, "file", "link -> out")
		}
		src.Know(t, spec.Digest)
		r := openCopied(t, f, spec)
		if _, err := os.Stat(filepath.Join(r.Path(), "link")); err == nil {
			t.Errorf("root %d: the symlink leads to a folder", i)
		}
		if !r.HasFolder("out") {
			makeBelow(t, r.Path(), "out")
		}
		leave(t, f, r)
	}
}
