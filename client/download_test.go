package client

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

const fn = digest.SHA256

func TestDownload(t *testing.T) {
	farm := newFarm(t, nil)
	text, script := farm.put(t, fn, []byte("text")), farm.put(t, fn, []byte("#!script"))
	leaf := &repb.Directory{
		Files:    []*repb.FileNode{{Name: "f", Digest: text}},
		Symlinks: []*repb.SymlinkNode{{Name: "l", Target: "../../run"}},
	}
	leafDigest, _, err := digest.OfMessage(fn, leaf)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := proto.Marshal(&repb.Tree{
		Root: &repb.Directory{Directories: []*repb.DirectoryNode{
			{Name: "none", Digest: fn.Empty().Proto()},
			{Name: "one", Digest: leafDigest.Proto()},
			{Name: "two", Digest: leafDigest.Proto()},
		}},
		Children: []*repb.Directory{{}, leaf},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := local{"run": "->/etc/passwd", "d/text": "old and longer", "kept": "k"}.write(t)
	err = Download(t.Context(), farm.client(fn), fn, &repb.ActionResult{
		OutputFiles: []*repb.OutputFile{
			{Path: "run", Digest: script, IsExecutable: true},
			{Path: "d/text", Digest: text},
			{Path: "nothing", Digest: fn.Empty().Proto()},
			{Path: "inline", Digest: digest.Of(fn, []byte("in")).Proto(), Contents: []byte("in")},
		},
		OutputSymlinks:    []*repb.OutputSymlink{{Path: "d/link", Target: "../run"}},
		OutputDirectories: []*repb.OutputDirectory{{Path: "t", TreeDigest: farm.put(t, fn, tree)}},
	}, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := local{
		"run": "#!script", "d/text": "text", "nothing": "", "inline": "in", "kept": "k",
		"d/link": "->../run", "t/none/": "",
		"t/one/f": "text", "t/one/l": "->../../run", "t/two/f": "text", "t/two/l": "->../../run",
	}
	if got := readLocal(t, dir); !maps.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestDownloadRefuses(t *testing.T) {
	farm := newFarm(t, nil)
	text := farm.put(t, fn, []byte("text"))
	absent := digest.Of(fn, []byte("absent")).Proto()
	file := func(paths ...string) *repb.ActionResult {
		r := &repb.ActionResult{}
		for _, p := range paths {
			r.OutputFiles = append(r.OutputFiles, &repb.OutputFile{Path: p, Digest: text})
		}
		return r
	}
	link := func(path, target string) *repb.ActionResult {
		return &repb.ActionResult{OutputSymlinks: []*repb.OutputSymlink{{Path: path, Target: target}}}
	}
	folder := func(path string, of *repb.Digest) *repb.ActionResult {
		return &repb.ActionResult{OutputDirectories: []*repb.OutputDirectory{{Path: path, TreeDigest: of}}}
	}
	tree := func(root *repb.Directory) *repb.ActionResult {
		b, err := proto.Marshal(&repb.Tree{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		return folder("t", farm.put(t, fn, b))
	}
	files := func(nodes ...*repb.OutputFile) *repb.ActionResult {
		return &repb.ActionResult{OutputFiles: nodes}
	}
	for name, result := range map[string]*repb.ActionResult{
		"parent":           file("../x"),
		"hidden parent":    file("a/../../x"),
		"absolute":         file("/x"),
		"empty path":       file(""),
		"itself":           file("."),
		"twice":            file("x", "x"),
		"folder here":      file("folder"),
		"below a file":     file("x", "x/y"),
		"through a link":   file("way/x"),
		"absolute link":    link("l", "/etc/passwd"),
		"link out":         link("a/l", "../../x"),
		"link round":       link("a/l", "way/../x"),
		"link to nothing":  link("l", ""),
		"absent":           files(&repb.OutputFile{Path: "x", Digest: absent}),
		"no digest":        files(&repb.OutputFile{Path: "x"}),
		"wrong contents":   files(&repb.OutputFile{Path: "x", Digest: text, Contents: []byte("no")}),
		"absent tree":      folder("t", absent),
		"no tree":          folder("t", nil),
		"tree is no tree":  folder("t", text),
		"tree outside":     folder("../t", text),
		"name in a tree":   tree(&repb.Directory{Files: []*repb.FileNode{{Name: "../x", Digest: text}}}),
		"parent in a tree": tree(&repb.Directory{Directories: []*repb.DirectoryNode{{Name: "..", Digest: absent}}}),
		"hole in a tree":   tree(&repb.Directory{Directories: []*repb.DirectoryNode{{Name: "d", Digest: absent}}}),
	} {
		t.Run(name, func(t *testing.T) {
			around := t.TempDir()
			outside, dir := filepath.Join(around, "outside"), filepath.Join(around, "dir")
			for _, d := range []string{outside, filepath.Join(dir, "folder")} {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(outside, filepath.Join(dir, "way")); err != nil {
				t.Fatal(err)
			}
			if err := Download(t.Context(), farm.client(fn), fn, result, dir); err == nil {
				t.Error("no error")
			}
			got := readLocal(t, around)
			delete(got, "dir/x") // may be written before "x/y" fails
			want := local{"outside/": "", "dir/folder/": "", "dir/way": "->" + outside}
			if !maps.Equal(got, want) {
				t.Errorf("left %q", got)
			}
		})
	}
}

// TestPlanBounded has small trees that expand to many folders, or to a very deep one.
func TestPlanBounded(t *testing.T) {
	farm := newFarm(t, nil)
	for _, test := range []struct {
		name     string
		levels   int
		children []string
		want     string
	}{
		{"wide", 40, []string{"a", "b"}, "more than 1000 outputs"},
		{"deep", 900, []string{"long name"}, "longer than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, tree := &repb.Directory{}, &repb.Tree{}
			for range test.levels {
				d, _, err := digest.OfMessage(fn, m)
				if err != nil {
					t.Fatal(err)
				}
				tree.Children = append(tree.Children, m)
				m = &repb.Directory{}
				for _, name := range test.children {
					m.Directories = append(m.Directories,
						&repb.DirectoryNode{Name: name, Digest: d.Proto()})
				}
			}
			tree.Root = m
			b, err := proto.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			p := &plan{client: farm.client(fn), fn: fn, limit: 1000}
			err = p.addResult(t.Context(), &repb.ActionResult{OutputDirectories: []*repb.OutputDirectory{
				{Path: "t", TreeDigest: farm.put(t, fn, b)},
			}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestOutput(t *testing.T) {
	farm := newFarm(t, nil)
	client := farm.client(fn)
	for _, test := range []struct {
		name string
		raw  string
		d    *repb.Digest
		want string
	}{
		{"nothing", "", nil, ""},
		{"inline", "raw", nil, "raw"},
		{"inline and stored", "raw", farm.put(t, fn, []byte("raw")), "raw"},
		{"stored", "", farm.put(t, fn, []byte("stored")), "stored"},
		{"empty", "", fn.Empty().Proto(), ""},
	} {
		got, err := Output(t.Context(), client, fn, []byte(test.raw), test.d)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
	}
	if got, err := Output(t.Context(), client, fn, []byte("other"), farm.put(t, fn, []byte("raw"))); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("inline content that does not match the digest: %q, %v; want ErrCorrupt", got, err)
	}
	absent := digest.Of(fn, []byte("absent")).Proto()
	if _, err := Output(t.Context(), client, fn, nil, absent); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("absent: %v, want ErrNotFound", err)
	}
}
