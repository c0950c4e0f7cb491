package link

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// reflinking are the file systems in which files can share blocks, and how one is made in a file.
var reflinking = map[string][]string{
	"xfs":   {"mkfs.xfs", "-q", "-m", "reflink=1"},
	"btrfs": {"mkfs.btrfs", "-q"},
}

// onReflinks runs a test in a folder on each of them that this kernel has. It is skipped, or fails
// if CI is set, where there is none, or no right to mount one.
func onReflinks(t *testing.T, test func(t *testing.T, dir string)) {
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	ran := false
	for name, mkfs := range reflinking {
		if !bytes.Contains(known, []byte("\t"+name+"\n")) {
			t.Logf("this kernel does not have %s", name)
			continue
		}
		if _, err := exec.LookPath(mkfs[0]); err != nil || os.Geteuid() != 0 {
			t.Logf("%s needs root and %s (make test-needs)", name, mkfs[0])
			continue
		}
		ran = true
		t.Run(name, func(t *testing.T) { test(t, mountImage(t, mkfs)) })
	}
	switch {
	case ran:
	case os.Getenv("CI") != "":
		t.Fatal("there is no file system with reflinks")
	default:
		t.Skip("there is no file system with reflinks")
	}
}

// mountImage makes a file system of half a GiB in a file and mounts it until the end of the test.
func mountImage(t *testing.T, mkfs []string) (dir string) {
	t.Helper()
	above := t.TempDir()
	image, dir := filepath.Join(above, "image"), filepath.Join(above, "disk")
	err := os.WriteFile(image, nil, 0o600)
	if err = errors.Join(err, os.Truncate(image, 512<<20), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{append(mkfs, image), {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil { // the loop device goes with it
			t.Errorf("unmount %s: %v", dir, err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}

// usedBytes is how much of the file system of dir is in use.
func usedBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	f, err := os.Open(dir)
	if err == nil {
		err = errors.Join(unix.Syncfs(int(f.Fd())), unix.Fstatfs(int(f.Fd()), &st), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// TestReflinks: if files can share blocks, copies of large inputs take no space of their own, but
// are separate files. Damage on the disk is found when the copy is made, too.
func TestReflinks(t *testing.T) {
	onReflinks(t, func(t *testing.T, dir string) {
		for _, bare := range []bool{false, true} {
			t.Run(fmt.Sprintf("bare %t", bare), func(t *testing.T) {
				above, err := os.MkdirTemp(dir, "")
				if err != nil {
					t.Fatal(err)
				}
				testReflinks(t, above, bare)
			})
		}
	})
}

func testReflinks(t *testing.T, dir string, bare bool) {
	const size = 16 << 20
	f := openLinkFarm(t, linkFarmOptions{Dir: dir, Bare: bare})
	src := vfstest.NewSource(t)
	src.Dir = dir
	text := strings.Repeat("sixteen letters.", size/16)
	d := src.Blob(t, text)
	m := &repb.Directory{}
	names := []string{"a", "b", "c", "d"}
	for i, name := range names {
		m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: d.Proto(), IsExecutable: i == 3})
	}
	root := src.Add(t, m)
	before := usedBytes(t, dir)
	r := openRoot(t, f, rootSpec{Digest: root, Source: src})
	if more := usedBytes(t, dir) - before; more > size/2 {
		t.Errorf("4 copies of %d bytes take %d", size, more)
	}
	assertApart(t, r.path(), len(names))
	at := func(name string) string { return filepath.Join(r.path(), name) }
	for _, name := range names {
		if string(mustRead(t, at(name))) != text {
			t.Errorf("%s is not the blob", name)
		}
	}
	vfstest.AppendMore(t, at("a"))
	for _, name := range []string{at("b"), at("d"), src.Blobs[d]} {
		if string(mustRead(t, name)) != text {
			t.Errorf("%s has changed with a", name)
		}
	}
	testReflinkOfDamage(t, f, src, d)
}

// testReflinkOfDamage makes a copy of a damaged file.
func testReflinkOfDamage(t *testing.T, f *linkFarm, src *vfstest.Source, d digest.Digest) {
	rot(t, src.Blobs[d])
	root := src.Add(t, &repb.Directory{Files: []*repb.FileNode{
		{Name: "odd", Digest: d.Proto(), NodeProperties: &repb.NodeProperties{UnixMode: wrapperspb.UInt32(0o640)}},
	}})
	_, err := f.newRoot(t.Context(), rootSpec{Digest: root, Source: src})
	if !errors.Is(err, vouch.ErrDamaged) || !strings.Contains(err.Error(), d.String()) {
		t.Errorf("a root of a wrong blob: %v", err)
	}
}
