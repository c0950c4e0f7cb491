package follow

import (
	"slices"
	"testing"
	"testing/synctest"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A flat is an input tree of one directory, which is local.
type flat struct {
	root digest.Digest
	dir  *tree.Directory
}

func (f flat) LocalDirectory(d digest.Digest) (*tree.Directory, bool) { return f.dir, d == f.root }

// TestFollower has files come that mention others, each file once, and only such that are read.
func TestFollower(t *testing.T) {
	contents := map[string]string{
		"a.c": "#include \"b.h\"\n#include \"local.h\"\n", "b.h": "#include \"c.h\"\n", "c.h": "int c;\n", "local.h": "#include \"b.h\"\n",
	}
	m := &repb.Directory{}
	ds := map[string]digest.Digest{}
	byDigest := map[digest.Digest]string{}
	for _, name := range []string{"a.c", "b.h", "c.h", "local.h"} {
		d := digest.Of(digest.SHA256, []byte(contents[name]))
		ds[name], byDigest[d] = d, contents[name]
		m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: d.Proto()})
	}
	root, encoded, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := tree.Parse(digest.SHA256, encoded)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var asked []File
		var unmentioned []string
		f := New(Spec{
			Root: root, Source: flat{root, dir}, Scans: NewScans(),
			Contents: func(d digest.Digest) ([]byte, bool) { return []byte(byDigest[d]), true },
			Request:  func(files []File) { asked = append(asked, files...) },
			Fetch:    func(ds []digest.Digest) { t.Errorf("directories %v are fetched", ds) },

			Unmentioned: func(path string) { unmentioned = append(unmentioned, path) },
		})
		go f.Run(t.Context())
		want := func(paths ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, a := range asked {
				got = append(got, a.Path)
			}
			if slices.Sort(got); !slices.Equal(got, paths) {
				t.Errorf("requested are %v, want %v", got, paths)
			}
		}
		f.Opened("a.c", Lacked)
		f.Came(ds["a.c"], cas.Absent)
		want("b.h", "local.h")
		f.Ended([]File{{Path: "local.h", Digest: ds["local.h"]}}, nil, nil)
		want("b.h", "local.h")
		f.Ended([]File{{Path: "b.h", Digest: ds["b.h"]}}, []digest.Digest{ds["b.h"]}, nil)
		want("b.h", "c.h", "local.h")
		f.Opened("b.h", Lacked)
		f.Opened("c.h", Lacked)
		want("b.h", "c.h", "local.h")
		if !slices.Equal(unmentioned, []string{"a.c"}) {
			t.Errorf("nothing mentions %v, want a.c", unmentioned)
		}
	})
}
