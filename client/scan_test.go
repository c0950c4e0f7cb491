package client

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// checkBlobs fails the test unless each blob occurs once and matches its digest.
func checkBlobs(t *testing.T, fn digest.Function, blobs []casclient.Blob) {
	t.Helper()
	seen := map[digest.Digest]bool{}
	for _, b := range blobs {
		if seen[b.Digest] {
			t.Errorf("%s occurs twice", b.Digest)
		}
		seen[b.Digest] = true
		r, err := b.Open()
		if err != nil {
			t.Fatal(err)
		}
		got, err := digest.OfReader(fn, r)
		_ = r.Close()
		if err != nil || got != b.Digest {
			t.Errorf("the blob %s has the digest %s, %v", b.Digest, got, err)
		}
	}
}

// TestScanRoundTrip scans folders and downloads them as one output folder.
func TestScanRoundTrip(t *testing.T) {
	tools := local{
		"bin/go": "#!compiler", "bin/gofmt": "#!formatter", "VERSION": "1",
		"src/same": "twice", "src/": "", "latest": "->bin/go",
	}
	module := local{
		"main.go": "package main", "Main.go": "another", "a-b": "1", "a/b": "2", "copy": "twice",
		"empty": "", "dir/none/": "", "dir/up": "->../main.go", "dangling": "->nowhere",
	}
	want := local{}
	for name, content := range tools {
		want["go/"+name] = content
	}
	for name, content := range module {
		want["work/src/"+name] = content
	}
	delete(want, "go/src/") // readLocal omits it because it is not empty
	for _, fn := range digest.Functions() {
		t.Run(fn.String(), func(t *testing.T) {
			files, bytes := 0, int64(0)
			inputs, err := Scan(t.Context(), fn, []Mount{
				{Prefix: "go", Dir: tools.write(t)}, {Prefix: "work/src", Dir: module.write(t)},
			}, func(f int, b int64) {
				if f < files || b < bytes {
					t.Error("progress goes back")
				}
				files, bytes = f, b
			})
			if err != nil {
				t.Fatal(err)
			}
			if inputs.Files != 10 || files != 10 || bytes != inputs.Bytes || bytes != 53 {
				t.Errorf("%d files of %d bytes, of which %d files of %d bytes were reported",
					inputs.Files, inputs.Bytes, files, bytes)
			}
			checkBlobs(t, fn, inputs.Blobs)
			farm := newFarm(t, nil)
			if err := farm.client(fn).Upload(t.Context(), inputs.Blobs, nil); err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			err = Download(t.Context(), farm.client(fn), fn, &repb.ActionResult{
				OutputDirectories: []*repb.OutputDirectory{{RootDirectoryDigest: inputs.Root.Proto()}},
			}, out)
			if err != nil {
				t.Fatal(err)
			}
			if got := readLocal(t, out); !maps.Equal(got, want) {
				t.Errorf("got %q\nwant %q", got, want)
			}
		})
	}
}

func TestScanMerges(t *testing.T) {
	whole := local{"a/x": "1", "a/y": "2", "z": "3"}.write(t)
	left, right := local{"a/x": "1", "z": "3"}.write(t), local{"y": "2"}.write(t)
	one, err := Scan(t.Context(), digest.SHA256, []Mount{{Dir: whole}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Scan(t.Context(), digest.SHA256, []Mount{{Dir: left}, {Prefix: "a", Dir: right}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if one.Root != two.Root {
		t.Error("merged folders differ from the whole one")
	}
}

func TestScanRefuses(t *testing.T) {
	pipe := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(pipe, "p"), 0o600); err != nil {
		t.Fatal(err)
	}
	latin := t.TempDir()
	if err := os.WriteFile(filepath.Join(latin, "caf\xe9"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	socket := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(socket, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	plain, other := local{"a": "1"}.write(t), local{"a/b": "1"}.write(t)
	for _, test := range []struct {
		name   string
		mounts []Mount
		want   string
	}{
		{"pipe", []Mount{{Dir: pipe}}, "named pipe"},
		{"socket", []Mount{{Dir: socket}}, "socket"},
		{"name", []Mount{{Dir: latin}}, "UTF-8"},
		{"absent", []Mount{{Dir: filepath.Join(plain, "none")}}, "no such file"},
		{"twice", []Mount{{Dir: plain}, {Dir: plain}}, "more than once"},
		{"file and folder", []Mount{{Dir: plain}, {Dir: other}}, "more than once"},
		{"absolute", []Mount{{Prefix: "/a", Dir: plain}}, "prefix"},
		{"parent", []Mount{{Prefix: "a/../..", Dir: plain}}, "prefix"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Scan(t.Context(), digest.SHA256, test.mounts, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}
