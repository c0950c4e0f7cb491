package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

const (
	// servedIn is the environment variable that tells a process where to serve images.
	servedIn    = "FORERUNNER_TEST_SERVED_IN"
	servedRoots = 4
)

// TestServeImagesUntilKilled is the process that TestKilledWithImages kills.
func TestServeImagesUntilKilled(t *testing.T) {
	dir := os.Getenv(servedIn)
	if dir == "" {
		return
	}
	src := newArrivingSource(t)
	sdk := src.Tree(t, toolchain("sdk")...)
	root := src.Add(t, &repb.Directory{
		Files:       []*repb.FileNode{{Name: "large", Digest: src.digest.Proto()}},
		Directories: []*repb.DirectoryNode{{Name: "all", Digest: sdk.Proto()}},
	})
	f := openFS(t, Options{
		MountDir: filepath.Join(dir, "mounts"), UpperDir: filepath.Join(dir, "upper"), Blobs: blobFolder(src.Source, nil),
	})
	learn(t, f, src.Source, lookAround(t), root)
	// From now on the blob must be fetched, and a part of it arrives.
	if err := os.Remove(filepath.Join(src.Dir, vfstest.BlobFile(src.digest))); err != nil {
		t.Fatal(err)
	}
	src.deliver(0, 1<<20)
	for i := range servedRoots {
		r := openRoot(t, f, RootSpec{Name: strconv.Itoa(i), Digest: root, Source: src})
		if imagesOf(r) == 0 {
			t.Fatal("no image in the root")
		}
	}
	fresh := src.Tree(t, append(toolchain("fresh"), "away/last")...)
	atHand(t, src.Source, fresh, libs("fresh")...)
	src.Gate(src.Find(t, fresh, "away"))
	r := openRoot(t, f, RootSpec{Name: "fresh", Digest: fresh, Source: src})
	if os.Getenv("CI") != "" && !r.images.Grown() {
		t.Fatal("the root of a fresh tree shows no image")
	}
	fmt.Println(`"ready"`)
	select {}
}

// TestKilledWithImages kills a process that shows images, while files in them are open, a partly
// arrived file is being read, and a reader waits for a directory of a growing image. The next
// process must clean up.
func TestKilledWithImages(t *testing.T) {
	openImageFS(t, vfstest.NewSource(t), nil) // skips where there are none
	dir := t.TempDir()
	temp := filepath.Join(dir, "temp") // for mounts that a killed process cannot remove
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(servedIn, dir)
	t.Setenv("TMPDIR", temp)
	o := Options{MountDir: filepath.Join(dir, "mounts"), UpperDir: filepath.Join(dir, "upper")}
	var helpers []*helper
	for range servedRoots + 1 { // the last one is for the root of a fresh tree
		helpers = append(helpers, startChild(t, "helper"))
	}
	for range 3 {
		server := startChild(t, "images", "-test.run=^TestServeImagesUntilKilled$")
		if got := server.answer(); got != "ready" {
			t.Fatal(got)
		}
		fresh, last := filepath.Join(o.MountDir, pointsName, "fresh", "root"), helpers[servedRoots]
		if got := last.do("read", filepath.Join(fresh, "fresh/lib1/file1")); !strings.HasPrefix(got, "content of ") {
			t.Errorf("read %q", got)
		}
		if got := last.do("chdir", filepath.Join(fresh, "fresh/lib2")); got != "ok" {
			t.Error(got)
		}
		last.ask("read", filepath.Join(fresh, "away/last"))
		for i, h := range helpers[:servedRoots] {
			root := filepath.Join(o.MountDir, pointsName, strconv.Itoa(i), "root")
			file := filepath.Join(root, "all/sdk/lib1/file1")
			if got := h.do("read", file); !strings.HasPrefix(got, "content of ") {
				t.Errorf("read %q", got)
			}
			for _, op := range [][]string{{"hold", file}, {"holdmap", file}, {"chdir", filepath.Join(root, "all/sdk")}} {
				if got := h.do(op[0], op[1]); got != "ok" {
					t.Errorf("%s: %s", op[0], got)
				}
			}
			h.ask("read", filepath.Join(root, "large"))
		}
		killAndClear(t, o, server, func() {
			for _, h := range helpers {
				if got := h.answer(); !strings.HasPrefix(got, "error: ") {
					t.Errorf("%d bytes were read of what came in part", len(got))
				}
			}
		})
	}
}
