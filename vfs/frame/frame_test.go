package frame

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

// newFrame makes a frame of the process that wants and has these folders.
func newFrame(t *testing.T, inside ...string) *Frame {
	t.Helper()
	f, err := Make(filepath.Join(t.TempDir(), "frame"), folder.ProcessOwner())
	if err != nil {
		t.Fatal(err)
	}
	fill(t, f, inside...)
	return f
}

// fill is what a root does with its frame.
func fill(t *testing.T, f *Frame, wanted ...string) {
	t.Helper()
	if err := f.Fit(PathsOf(wanted)); err != nil {
		t.Fatal(err)
	}
	for _, at := range wanted {
		switch err := os.Mkdir(filepath.Join(f.Path(), at), newMode); {
		case f.Has(at) && !errors.Is(err, fs.ErrExist), !f.Has(at) && err != nil:
			t.Fatal(at, f.Has(at), err)
		}
	}
}

// assertBare fails the test unless f has what it says, and all of that is as new.
func assertBare(t *testing.T, f *Frame) {
	t.Helper()
	like, err := Make(f.Path()+"-new", f.Owner())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(like.Path()) }()
	want := looks(t, like.Path())
	var found []string
	err = filepath.WalkDir(f.Path(), func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if at, _ := filepath.Rel(f.Path(), p); at != "." {
			found = append(found, at)
		}
		if got := looks(t, p); got != want {
			t.Errorf("%s is %s, and a new folder %s", p, got, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if told := slices.Sorted(slices.Values(f.inside)); !slices.Equal(found, told) {
		t.Errorf("it has %q, and says %q", found, told)
	}
}

// looks describes all of a folder but its entries, by other means than the package.
func looks(t *testing.T, dir string) string {
	t.Helper()
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil {
		t.Fatal(err)
	}
	names := make([]byte, 1000)
	n, err := unix.Llistxattr(dir, names)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	return fmt.Sprintf("%o of %d:%d, attributes %x %q, flags %x %v", st.Mode, st.Uid, st.Gid, st.Attributes, names[:n], flags, err)
}

// Flags of ioctl_iflags(2).
const (
	synchronous = 0x8
	noDump      = 0x40
	topmost     = 0x20000
)

// setFlags sets flags of a folder as chattr(1).
func setFlags(flags int) func(dir string) error {
	return func(dir string) error {
		fd, err := unix.Open(dir, unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		old, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
		if err == nil {
			err = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(old)|flags)
		}
		return err
	}
}

// TestGeneration: on a file system where an action can set the generation of a folder, no other action
// finds it.
func TestGeneration(t *testing.T) {
	f := newFrame(t, "a")
	const mark = 4711
	for range 2 {
		for _, at := range []string{".", "a"} {
			if err := setVersionOf(filepath.Join(f.Path(), at), mark); errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
				t.Skip("not on this file system")
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if !f.Strip(folder.RemoveTree) || !f.Has("a") {
			t.Fatal("it cannot be used again")
		}
		for _, at := range []string{".", "a"} {
			fd, err := unix.Open(filepath.Join(f.Path(), at), unix.O_RDONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			got, err := unix.IoctlGetUint32(fd, getVersion)
			if _ = unix.Close(fd); err != nil || got == mark {
				t.Errorf("%s has %d, %v", at, got, err)
			}
		}
	}
}

// getVersion is FS_IOC_GETVERSION.
const getVersion = 0x80087601

func setVersionOf(dir string, version int) error {
	fd, err := unix.Open(dir, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.IoctlSetPointerInt(fd, setVersion, version)
}

// TestForgets: only file systems that sort names can have frames.
func TestForgets(t *testing.T) {
	memory, err := os.MkdirTemp("/dev/shm", "frame")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(memory) }()
	for _, dir := range []string{t.TempDir(), memory} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		want, known := map[int64]bool{unix.EXT4_SUPER_MAGIC: true, unix.TMPFS_MAGIC: false, unix.XFS_SUPER_MAGIC: false, unix.BTRFS_SUPER_MAGIC: false}[st.Type]
		got, err := Forgets(dir)
		if err != nil || known && got != want {
			t.Errorf("%s of type %x: %v, %v", dir, st.Type, got, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	if _, err := Forgets(filepath.Join(memory, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// aclOfAll is a default access control list that lets everybody write.
const aclOfAll = "\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x04\x00\x07\x00\xff\xff\xff\xff\x20\x00\x07\x00\xff\xff\xff\xff"

// TestStrip: whatever an action did to its folders, the next one finds bare ones. Those that are not
// as new are not kept.
func TestStrip(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(dir string) error // to the folder a/b
		kept   string                 // of a, a/b, a/b/c and d
		spoilt bool                   // nothing can be kept
	}{
		"nothing":   {do: func(string) error { return nil }, kept: "a a/b a/b/c d"},
		"a file":    {do: func(dir string) error { return os.WriteFile(filepath.Join(dir, "x\n"), []byte("x"), 0o000) }, kept: "a a/b a/b/c d"},
		"a symlink": {do: func(dir string) error { return os.Symlink("/etc", filepath.Join(dir, "link")) }, kept: "a a/b a/b/c d"},
		"a pipe":    {do: func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600) }, kept: "a a/b a/b/c d"},
		"folders": {do: func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "x", strings.Repeat("y/", 500)), 0o500)
		}, kept: "a a/b a/b/c d"},
		"an empty folder": {do: func(dir string) error { return os.Mkdir(filepath.Join(dir, "x"), 0o000) }, kept: "a a/b a/b/c d"},
		"another mode":    {do: func(dir string) error { return os.Chmod(dir, 0o777|os.ModeSetgid|os.ModeSticky) }, kept: "a a/b a/b/c d"},
		"closed":          {do: func(dir string) error { return os.Chmod(dir, 0) }, kept: "a a/b a/b/c d"},
		"another time":    {do: func(dir string) error { return os.Chtimes(dir, time.Unix(9, 9), time.Unix(9, 9)) }, kept: "a a/b a/b/c d"},
		"another owner":   {do: func(dir string) error { return os.Chown(dir, 12345, -1) }, kept: "a d"},
		"another group":   {do: func(dir string) error { return os.Chown(dir, -1, 12345) }, kept: "a d"},
		"an attribute":    {do: func(dir string) error { return unix.Setxattr(dir, "user.mark", []byte("here"), 0) }, kept: "a d"},
		"for all":         {do: func(dir string) error { return unix.Setxattr(dir, "system.posix_acl_default", []byte(aclOfAll), 0) }, kept: "a d"},
		"not dumped":      {do: setFlags(noDump), kept: "a d"},
		"always written":  {do: setFlags(synchronous), kept: "a d"},
		"for topmost":     {do: setFlags(topmost), kept: "a d"},
		"removed":         {do: os.RemoveAll, kept: "a d"},
		"moved":           {do: func(dir string) error { return os.Rename(dir, dir+"2") }, kept: "a d"},
		"swapped": {do: func(dir string) error {
			return unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, filepath.Join(dir, "../../d"), unix.RENAME_EXCHANGE)
		}, kept: "a a/b d"},
		"a file there": {do: func(dir string) error {
			return errors.Join(os.Rename(dir, filepath.Join(dir, "../../d/b")), os.WriteFile(dir, nil, 0o600))
		}, kept: "a d"},
		"a symlink there": {do: func(dir string) error {
			return errors.Join(os.Rename(dir, filepath.Join(dir, "../../d/b")), os.Symlink("../d/b", dir))
		}, kept: "a d"},
		"was large": {do: func(dir string) error {
			for _, f := range []func(string) error{func(p string) error { return os.WriteFile(p, nil, 0o600) }, os.Remove} {
				for i := range 300 {
					if err := f(filepath.Join(dir, fmt.Sprintf("%0200d", i))); err != nil {
						return err
					}
				}
			}
			var st unix.Stat_t
			if err := unix.Stat(dir, &st); err != nil || st.Size > folder.MaxBytes {
				return err
			}
			return unix.ENOTSUP // it is small again
		}, kept: "a d"},
		"much in several": {do: func(dir string) error {
			for _, in := range []string{".", "c", "..", "../.."} {
				for i := range maxEntries / 4 {
					if err := os.Mkdir(filepath.Join(dir, in, fmt.Sprint(i)), 0o700); err != nil {
						return err
					}
				}
			}
			return nil
		}, spoilt: true},
		"much in one": {do: func(dir string) error {
			for i := range 2 * maxEntries {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		}, kept: "a d"},
		"an attribute of the top": {do: func(dir string) error { return unix.Setxattr(filepath.Join(dir, "../.."), "user.mark", nil, 0) }, spoilt: true},
		"no top":                  {do: func(dir string) error { return os.RemoveAll(filepath.Join(dir, "../..")) }, spoilt: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFrame(t, "a", "a/b", "a/b/c", "d")
			switch err := c.do(filepath.Join(f.Path(), "a/b")); {
			case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
				t.Skip("not as this user")
			case errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOTTY):
				t.Skip("not on this file system")
			case err != nil:
				t.Fatal(err)
			}
			if got := f.Strip(folder.RemoveTree); got == c.spoilt {
				t.Fatalf("it can be used again: %v", got)
			}
			if c.spoilt {
				return
			}
			if os.Geteuid() != 0 && name == "closed" {
				c.kept = "a d" // it cannot be looked into
			}
			if got := strings.Join(slices.Sorted(slices.Values(f.inside)), " "); got != c.kept {
				t.Errorf("kept %q, want %q", got, c.kept)
			}
			assertBare(t, f)
			fill(t, f, "d", "e")
			assertOnly(t, f, "d", "e")
		})
	}
}

// assertOnly fails the test unless f has these folders and nothing else.
func assertOnly(t *testing.T, f *Frame, wanted ...string) {
	t.Helper()
	var got []string
	err := filepath.WalkDir(f.Path(), func(p string, d fs.DirEntry, err error) error {
		if at, _ := filepath.Rel(f.Path(), p); at != "." && err == nil && d.IsDir() {
			got = append(got, at)
		} else if at != "." {
			got = append(got, "other: "+at)
		}
		return err
	})
	if slices.Sort(wanted); err != nil || !slices.Equal(got, wanted) {
		t.Errorf("it has %q, %v, want %q", got, err, wanted)
	}
}

// TestOthersStay: what symlinks of an action lead to is nobody's business.
func TestOthersStay(t *testing.T) {
	other := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(other, "b/c"), 0o755), os.WriteFile(filepath.Join(other, "b/file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	f := newFrame(t, "a", "a/b", "a/b/c")
	if err := errors.Join(os.RemoveAll(filepath.Join(f.Path(), "a")), os.Symlink(other, filepath.Join(f.Path(), "a"))); err != nil {
		t.Fatal(err)
	}
	if !f.Strip(folder.RemoveTree) || len(f.inside) > 0 {
		t.Errorf("kept %q", f.inside)
	}
	fill(t, f, "a", "a/b")
	for _, p := range []string{"b/c", "b/file"} {
		if _, err := os.Lstat(filepath.Join(other, p)); err != nil {
			t.Error(err)
		}
	}
}

// TestFit takes frames from root to root with random folders.
func TestFit(t *testing.T) {
	const seed = 4711
	random := rand.New(rand.NewPCG(seed, seed))
	f := newFrame(t)
	for range 300 {
		wanted := &Paths{}
		for range random.IntN(20) {
			at := fmt.Sprint(random.IntN(3))
			for range random.IntN(4) {
				at = path.Join(at, fmt.Sprint(random.IntN(3)))
			}
			wanted.Add(at)
		}
		fill(t, f, wanted.list...)
		assertOnly(t, f, slices.Clone(wanted.list)...)
		if random.IntN(2) == 0 {
			if err := os.WriteFile(filepath.Join(f.Path(), "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !f.Strip(folder.RemoveTree) || len(f.inside) != len(wanted.list) {
			t.Fatalf("%d of %d folders are kept", len(f.inside), len(wanted.list))
		}
		assertBare(t, f)
	}
}

// TestFitRenames: a folder that is not wanted becomes a missing one beside it, with all in it.
func TestFitRenames(t *testing.T) {
	f := newFrame(t, "out", "out/one", "out/one/objects", "gone")
	if !f.Strip(folder.RemoveTree) {
		t.Fatal("it cannot be used again")
	}
	inode := func(at string) uint64 {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(f.Path(), at), &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	before := inode("out/one/objects")
	wanted := PathsOf([]string{"out", "out/two", "out/two/objects", "out/two/others"})
	if got := f.Match(wanted); got != -2 {
		t.Errorf("it matches by %d", got)
	}
	fill(t, f, wanted.list...)
	if inode("out/two/objects") != before {
		t.Error("a folder was made anew")
	}
	assertOnly(t, f, "out", "out/two", "out/two/objects", "out/two/others")
}

// TestPaths: a set has no path without those on the way.
func TestPaths(t *testing.T) {
	p := PathsOf([]string{"b/c", "a", "a/b", "a", "a/b/c/d"})
	if want := []string{"a", "a/b"}; !slices.Equal(p.list, want) {
		t.Errorf("%q, want %q", p.list, want)
	}
}

// TestManyFolders: a frame keeps a limited number.
func TestManyFolders(t *testing.T) {
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprint(i))
		for j := range 20 {
			many = append(many, fmt.Sprint(i, "/", j))
		}
	}
	f := newFrame(t, many...)
	if !f.Strip(folder.RemoveTree) || len(f.inside) != maxFolders {
		t.Errorf("%d folders are kept", len(f.inside))
	}
	assertBare(t, f)
}
