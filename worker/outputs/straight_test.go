package outputs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
)

// makeWays makes a folder with all that may be on the way to an output, and opens it.
func makeWays(t *testing.T) *os.Root {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	for _, p := range []string{"real/in", "a/b"} {
		check(t, os.MkdirAll(filepath.Join(dir, p), 0o755))
	}
	for _, p := range []string{"file", "a/file", "real/file"} {
		check(t, os.WriteFile(filepath.Join(dir, p), []byte(p), 0o644))
	}
	for link, target := range map[string]string{
		"link": "a", "a/link": "../real", "a/b/link": "../../real/in", "real/link": "../../root/a", "up": "..", "a/up": "..",
		"out": filepath.Dir(dir), "a/out": filepath.Dir(dir) + "/beside", "gone": "none/below", "a/gone": "none", "loop": "loop", "to-file": "a/file",
	} {
		check(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	root, err := os.OpenRoot(dir)
	check(t, err)
	t.Cleanup(func() { check(t, root.Close()) })
	return root
}

// ways returns the paths of up to three of the names that makeWays uses, and of others.
func ways() (paths []string) {
	names := []string{"a", "b", "real", "in", "file", "link", "up", "out", "gone", "loop", "to-file", "new"}
	above := []string{"."}
	for range 3 {
		var next []string
		for _, dir := range above {
			for _, name := range names {
				next = append(next, path.Join(dir, name))
			}
		}
		paths = append(paths, next...)
		above = next
	}
	return paths
}

// listing returns all paths below the folder that root is in, with their modes.
func listing(t *testing.T, root *os.Root) map[string]fs.FileMode {
	t.Helper()
	found := map[string]fs.FileMode{}
	top := filepath.Dir(root.Name())
	check(t, filepath.WalkDir(top, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			found[strings.TrimPrefix(p, top)] = info.Mode()
		}
		return err
	}))
	return found
}

// TestPrepareIsMkdirAll: the folders are those that os.Root makes for one path after the other, and
// so is the error.
func TestPrepareIsMkdirAll(t *testing.T) {
	all, random := ways(), rand.New(rand.NewPCG(1, 2))
	const lists = 80
	failed := 0
	for range lists {
		got, want := makeWays(t), makeWays(t)
		s := &Spec{WorkingDirectory: "."}
		var wantErr error
		for range 4 {
			p := Path{Full: all[random.IntN(len(all))], Kind: Kind(random.IntN(3))}
			p.Given = p.Full
			s.Paths = append(s.Paths, p)
			dir := p.Full
			if p.Kind != Directory {
				dir = path.Dir(dir)
			}
			if wantErr == nil {
				if err := want.MkdirAll(dir, 0o755); err != nil {
					wantErr = pathFault("directory of output", p.Given, err)
					failed++
				}
			}
		}
		if err := s.Prepare(got); fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%+v: %v, want %v", s.Paths, err, wantErr)
		}
		if is, want := listing(t, got), listing(t, want); !maps.Equal(is, want) {
			t.Errorf("%+v: there are %v, want %v", s.Paths, is, want)
		}
	}
	if failed == 0 || failed == lists {
		t.Errorf("%d of %d failed", failed, lists)
	}
}

// TestLookoutIsLstat: a lookout finds what os.Root finds, and follows no symlink without saying so.
func TestLookoutIsLstat(t *testing.T) {
	root := makeWays(t)
	look, err := newLookout(root)
	check(t, err)
	defer look.close()
	found := 0
	for _, p := range append(ways(), ".") {
		got, straight, err := look.lstat(p)
		want, wantErr := root.Lstat(p)
		if missing := errors.Is(err, fs.ErrNotExist); missing != errors.Is(wantErr, fs.ErrNotExist) ||
			!missing && fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%s: %v, want %v", p, err, wantErr)
			continue
		}
		if err != nil {
			continue
		}
		found++
		if !os.SameFile(got, want) || got.Mode() != want.Mode() || got.Size() != want.Size() {
			t.Errorf("%s: %+v, want %+v", p, got, want)
		}
		dir := filepath.Join(root.Name(), path.Dir(p))
		if end, err := filepath.EvalSymlinks(dir); err != nil || straight != (end == dir) {
			t.Errorf("%s: straight is %t; its folder is %s, %v", p, straight, end, err)
		}
	}
	if found < 40 {
		t.Errorf("only %d exist", found)
	}
}

// TestFoldersAreEnteredOnce: outputs that have folders in common cost each of these once, and a way
// through a symlink costs nothing else.
func TestFoldersAreEnteredOnce(t *testing.T) {
	files := []string{"top", "a/b/c/1", "a/b/c/2", "a/b/4", "a/b/d/3"}
	for name, link := range map[string]string{"straight": "", "through a symlink": "a/link/5"} {
		t.Run(name, func(t *testing.T) {
			open := 0
			root := &inputRoot{dir: t.TempDir(), entered: map[string]int{}, open: &open}
			var want []*repb.OutputFile
			for _, p := range files {
				check(t, os.MkdirAll(filepath.Join(root.dir, path.Dir(p)), 0o755))
				check(t, os.WriteFile(filepath.Join(root.dir, p), []byte(p), 0o644))
				want = append(want, file(p, p))
			}
			paths := files
			if link != "" {
				check(t, os.Symlink("../other", filepath.Join(root.dir, "a/link")))
				check(t, os.Mkdir(filepath.Join(root.dir, "other"), 0o755))
				check(t, os.WriteFile(filepath.Join(root.dir, "other/5"), []byte(link), 0o644))
				paths, want = append(slices.Clone(files), link), append(want, file(link, link))
			}
			o, err := collectFrom(t, root, Policy{}, paths...)
			check(t, err)
			if !proto.Equal(o.Result, &repb.ActionResult{OutputFiles: want}) {
				t.Errorf("the result is %v, want %v", o.Result, want)
			}
			for p, n := range root.entered {
				if is := strings.TrimPrefix(p, root.dir+"/"); n != 1 && (is != "a" || link == "") {
					t.Errorf("%s was entered %d times", is, n)
				}
			}
			if len(root.entered) != 4 || open != 0 {
				t.Errorf("entered were %v, %d of them are still open", root.entered, open)
			}
			// Through a symlink, two paths may lead to one file.
			if _, err := os.Lstat(filepath.Join(root.dir, "a/b/c/1")); (err == nil) != (link != "") {
				t.Errorf("after the collection: %v", err)
			}
		})
	}
}

// TestFolders: the folders that are told are those that Prepare makes, each after the one it is in.
func TestFolders(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, wd := range []string{".", "work", "work/here"} {
		for range 50 {
			top := t.TempDir()
			check(t, os.MkdirAll(filepath.Join(top, wd), 0o755))
			root, err := os.OpenRoot(top)
			check(t, err)
			s := &Spec{WorkingDirectory: wd}
			for range random.IntN(6) {
				full := wd
				for range 1 + random.IntN(4) {
					full = path.Join(full, []string{"a", "b", ".."}[random.IntN(3)])
				}
				if full != ".." && !strings.HasPrefix(full, "../") && full != "." {
					s.Paths = append(s.Paths, Path{Given: full, Full: full, Kind: Kind(random.IntN(3))})
				}
			}
			before := listing(t, root)
			told := s.Folders()
			check(t, s.Prepare(root))
			made := listing(t, root)
			maps.DeleteFunc(made, func(p string, _ fs.FileMode) bool { _, ok := before[p]; return ok })
			for i, dir := range told {
				if in := path.Dir(dir); in != "." && before["/"+filepath.Base(top)+"/"+in] == 0 && !slices.Contains(told[:i], in) {
					t.Errorf("%q is told before %q, of %q", dir, in, told)
				}
				if p := "/" + filepath.Base(top) + "/" + dir; made[p] == 0 {
					t.Errorf("%q is told, and not made: %+v", dir, s)
				} else {
					delete(made, p)
				}
			}
			if len(made) > 0 {
				t.Errorf("%v were made, and not told: %+v", made, s)
			}
			check(t, root.Close())
		}
	}
}

// TestIsPrepared: nothing is left to prepare if, and only if, each folder is there that Prepare would
// make in an empty root, and the working directory.
func TestIsPrepared(t *testing.T) {
	all, random := ways(), rand.New(rand.NewPCG(3, 4))
	for range 200 {
		s := &Spec{WorkingDirectory: all[random.IntN(len(all))]}
		for range random.IntN(4) {
			s.Paths = append(s.Paths, Path{Full: all[random.IntN(len(all))], Kind: Kind(random.IntN(3))})
		}
		root, err := os.OpenRoot(t.TempDir())
		check(t, err)
		check(t, root.MkdirAll(s.WorkingDirectory, 0o755))
		check(t, s.Prepare(root))
		here := func(dir string) bool { _, err := root.Lstat(dir); return err == nil }
		if !s.IsPrepared(here) {
			t.Errorf("%+v is not prepared, although Prepare has been called", s)
		}
		for _, dir := range append(s.Folders(), s.WorkingDirectory) {
			lacking := func(d string) bool { return d != dir && here(d) }
			// Prepare itself makes only the last of folders in each other.
			last := dir == s.WorkingDirectory || slices.ContainsFunc(s.Paths, func(o Path) bool { return o.folder() == dir })
			if last && s.IsPrepared(lacking) {
				t.Errorf("%+v is prepared without %s", s, dir)
			}
		}
		check(t, root.Close())
	}
}
