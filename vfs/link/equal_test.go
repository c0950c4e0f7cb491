package link

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// equals stores a tree of two large parts, which are kept apart, and a small one, all with the same
// files. Each large part also has equal files.
func equals(t testing.TB, src *vfstest.Source, own string, large ...string) digest.Digest {
	t.Helper()
	content := src.Blob(t, "the same")
	empty := src.Blob(t, "")
	part := func(files int) *repb.Directory {
		m := &repb.Directory{}
		for i := range files {
			m.Files = append(m.Files,
				&repb.FileNode{Name: fmt.Sprintf("file%d", i), Digest: content.Proto()},
				&repb.FileNode{Name: fmt.Sprintf("empty%d", i), Digest: empty.Proto()})
		}
		return m
	}
	top := part(2)
	top.Files = append(top.Files, &repb.FileNode{Name: own, Digest: content.Proto()})
	for _, name := range large {
		top.Directories = append(top.Directories, &repb.DirectoryNode{Name: name, Digest: src.Add(t, part(minKeptEntries/2)).Proto()})
	}
	return src.Add(t, top)
}

// assertApart fails the test if two files below dir are one.
func assertApart(t *testing.T, dir string, want int) {
	t.Helper()
	seen := map[uint64]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		if other, ok := seen[st.Ino]; ok {
			t.Errorf("%s and %s are one file", p, other)
		}
		seen[st.Ino] = p
		return nil
	})
	if err != nil || len(seen) != want {
		t.Errorf("%d files, want %d: %v", len(seen), want, err)
	}
}

// TestEqualInputsAreApart: a copy of a root, even by a tool that keeps hard links, has independent
// files, also where parts of roots are kept for others.
func TestEqualInputsAreApart(t *testing.T) {
	bothWays(t, func(t *testing.T, f *linkFarm) {
		src := vfstest.NewSource(t)
		const perPart = minKeptEntries / 2 * 2
		for i, large := range [][]string{{"sdk"}, {"sdk"}, {"sdk", "other"}, {"other"}, {"other", "sdk"}, {"sdk", "other"}} {
			own := fmt.Sprintf("own%d", i)
			r := openRoot(t, f, rootSpec{Digest: equals(t, src, own, large...), Source: src})
			assertApart(t, r.path(), 5+len(large)*perPart)
			for name, script := range map[string]string{
				"cp":  `cp -a "$1" "$2"`,
				"tar": `mkdir "$2" && tar -C "$1" -cf - . | tar -C "$2" -xf -`,
			} {
				to := filepath.Join(t.TempDir(), "copy")
				if out, err := exec.Command("sh", "-ec", script, "sh", r.path(), to).CombinedOutput(); err != nil || len(out) > 0 {
					t.Fatalf("%s: %s, %v", name, out, err)
				}
				for _, p := range []string{"file0", "empty0", large[0] + "/file1", large[0] + "/empty1"} {
					p = filepath.Join(to, p)
					if err := os.Chmod(p, 0o644); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(p, []byte("changed"), 0); err != nil {
						t.Fatal(err)
					}
				}
				assertChanged(t, to, 4)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
		}
		if !f.bare && len(kept(f)) != 2 {
			t.Errorf("kept are %q", kept(f))
		}
	})
}

// TestEqualInputsAreReadOnce: of many equal files the blob is read for a batch of them at a time,
// and one without bytes never.
func TestEqualInputsAreReadOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, f *linkFarm) {
		src := vfstest.NewSource(t)
		d := equals(t, src, "own", "sdk")
		r := openRoot(t, f, rootSpec{Digest: d, Source: src})
		same, empty := src.Blob(t, "the same"), src.Blob(t, "")
		files := minKeptEntries/2 + 3 // of the same text
		if n, most := src.Calls(same), files/copyBatch+1; n > most {
			t.Errorf("the blob of %d files was opened %d times, want %d at most", files, n, most)
		}
		if n := src.Calls(empty); n != 0 {
			t.Errorf("the empty blob was opened %d times", n)
		}
		assertChanged(t, r.path(), 0)
	})
}

// TestCopiesAreApartOnTheDisk: ext4 does not look for their inodes among those that roots have
// freed.
func TestCopiesAreApartOnTheDisk(t *testing.T) {
	f := openLinkFarm(t, linkFarmOptions{})
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(f.dir, ".links"), &st); err != nil || st.Type != unix.EXT4_SUPER_MAGIC {
		t.Logf("it is not on ext4: %#x, %v", st.Type, err)
		return
	}
	dir, err := os.Open(filepath.Join(f.dir, ".links"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	if flags, err := unix.IoctlGetInt(int(dir.Fd()), unix.FS_IOC_GETFLAGS); err != nil || flags&topDirectory == 0 {
		t.Errorf("the folder's flags are %#x, %v", flags, err)
	}
}

// assertChanged fails the test unless that many files below dir differ from equals's.
func assertChanged(t *testing.T, dir string, want int) {
	t.Helper()
	changed := 0
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content := "the same"
		if strings.HasPrefix(d.Name(), "empty") {
			content = ""
		}
		if string(mustRead(t, p)) != content {
			changed++
		}
		return nil
	})
	if err != nil || changed != want {
		t.Errorf("%d files below %s were changed, want %d: %v", changed, dir, want, err)
	}
}

// BenchmarkEqualInputs makes roots of 1,541 files of two contents: the first one, and those that
// find copies of them.
func BenchmarkEqualInputs(b *testing.B) {
	large := []string{"1", "2", "3", "4", "5", "6"}
	for name, o := range map[string]linkFarmOptions{"overlay": {}, "bare": {Bare: true}} {
		b.Run(name, func(b *testing.B) {
			f := openLinkFarm(b, o)
			src := vfstest.NewSource(b)
			made := 0
			root := func() {
				made++
				own := fmt.Sprintf("own%d", made)
				d := equals(b, src, own, large...)
				r, err := f.newRoot(b.Context(), rootSpec{Digest: d, Source: src})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := r.close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			first := 0.0
			for range 3 {
				began := time.Now()
				root()
				if first == 0 {
					first = float64(time.Since(began).Microseconds()) / 1000
				}
			}
			for b.Loop() {
				root()
			}
			b.ReportMetric(first, "first-ms")
		})
	}
}
