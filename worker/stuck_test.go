package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/vfs"
)

// immutable is FS_IMMUTABLE_FL of ioctl_iflags(2).
const immutable = 0x10

// hold makes the file of a blob in the worker's store immutable, as chattr +i does.
func (f *farm) hold(t *testing.T, content string) (letGo func()) {
	t.Helper()
	file, err := os.Open(filepath.Join(f.local.Dir(), disk.BlobPath(digestOfBytes(content))))
	check(t, err)
	flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags|immutable)
	}
	if err != nil {
		t.Skip("no immutable files here:", err)
	}
	letGo = func() {
		_ = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	t.Cleanup(func() {
		letGo()
		_ = file.Close()
	})
	return letGo
}

// TestRotThatStays: a damaged file that cannot be taken away fails the actions that need its blob,
// in words, and no others.
func TestRotThatStays(t *testing.T) {
	for name, method := range map[string]vfs.Method{"fuse": vfs.FUSE, "links": vfs.HardLink} {
		t.Run(name, func(t *testing.T) {
			f := newRottingFarm(t, vfs.Options{Method: method}, farmOptions{})
			in := tree{"in": "good bytes"}
			assertOK(t, f.run(t, spec{inputs: in, shell: "cat in"}))
			f.rot(t, "good bytes")
			letGo := f.hold(t, "good bytes")
			in = tree{"in": executable("good bytes")} // without a copy to link so far
			for _, own := range []string{"one", "two"} {
				in["own"] = own
				j := f.start(t, spec{inputs: in, shell: "cat in > out", paths: []string{"out"}})
				assertCode(t, j.result(t), codes.Unavailable, digestOfBytes("good bytes").Hash())
				f.assertNotCached(t, j)
				assertOK(t, f.run(t, spec{inputs: tree{"other": own}, shell: "cat other"}))
			}
			letGo()
			in["own"] = "three"
			j := f.start(t, spec{inputs: in, shell: "cat in > out", paths: []string{"out"}})
			f.assertOutput(t, j, j.result(t), "good bytes")
			f.assertGood(t)
		})
	}
}

// TestRotThatStaysBehindAnImage: the kernel continues to show the damaged file.
func TestRotThatStaysBehindAnImage(t *testing.T) {
	f, in := readImageFarm(t)
	f.rot(t, "library 7")
	letGo := f.hold(t, "library 7")
	for _, own := range []string{"one", "two"} {
		j := f.start(t, spec{inputs: in(own), shell: "cat sdk/lib7/file > out", paths: []string{"out"}})
		r := j.result(t)
		assertCode(t, r, codes.Unavailable, "")
		if got := r.GetStatus().GetMessage(); !strings.Contains(got, digestOfBytes("library 7").Hash()) {
			t.Errorf("the client is told %q", got)
		}
		f.assertNotCached(t, j)
		assertOK(t, f.run(t, spec{inputs: in("other " + own), shell: "cat sdk/lib8/file"}))
	}
	letGo()
	j := f.start(t, spec{inputs: in("three"), shell: "cat sdk/lib7/file > out", paths: []string{"out"}})
	f.assertOutput(t, j, j.result(t), "library 7")
}
