package worker

import (
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/vfs"
)

// everything makes one output of each sort.
const everything = `
	echo plain > file
	printf '#!/bin/sh\n' > tool && chmod 755 tool
	ln -s file to-file
	ln -s ../outside/nowhere dangling
	mkdir -p dir/sub/leaf dir/empty
	echo deep > dir/sub/leaf/f
	echo run > dir/sub/x && chmod 711 dir/sub/x
	ln -s sub/leaf dir/link
	ln -s dir to-dir
	: > nothing`

// treeOf returns the Tree of an output directory, decoded.
func (f *farm) treeOf(t *testing.T, d *repb.OutputDirectory) *repb.Tree {
	t.Helper()
	m := &repb.Tree{}
	check(t, proto.Unmarshal([]byte(f.read(t, d.GetTreeDigest())), m))
	return m
}

// everythingTree returns the Tree that the client must get for dir.
func everythingTree(t *testing.T) *repb.Tree {
	t.Helper()
	node := func(name, content string, exec bool) *repb.FileNode {
		return &repb.FileNode{
			Name: name, Digest: digest.Of(digest.SHA256, []byte(content)).Proto(), IsExecutable: exec,
		}
	}
	leaf := &repb.Directory{Files: []*repb.FileNode{node("f", "deep\n", false)}}
	sub := &repb.Directory{
		Files:       []*repb.FileNode{node("x", "run\n", true)},
		Directories: []*repb.DirectoryNode{{Name: "leaf", Digest: digestOf(t, leaf).Proto()}},
	}
	empty := &repb.Directory{}
	root := &repb.Directory{
		Directories: []*repb.DirectoryNode{
			{Name: "empty", Digest: digestOf(t, empty).Proto()}, {Name: "sub", Digest: digestOf(t, sub).Proto()},
		},
		Symlinks: []*repb.SymlinkNode{{Name: "link", Target: "sub/leaf"}},
	}
	// A parent comes before its children.
	return &repb.Tree{Root: root, Children: []*repb.Directory{sub, leaf, empty}}
}

func assertResult(t *testing.T, got, want *repb.ActionResult) {
	t.Helper()
	got = proto.CloneOf(got)
	got.ExecutionMetadata = nil
	if !proto.Equal(got, want) {
		t.Errorf("result is\n%v\nwant\n%v", got, want)
	}
}

func outputFile(path, content string, executable bool) *repb.OutputFile {
	return &repb.OutputFile{
		Path: path, Digest: digest.Of(digest.SHA256, []byte(content)).Proto(), IsExecutable: executable,
	}
}

func TestOutputPaths(t *testing.T) {
	f := newFarm(t)
	r := f.run(t, spec{shell: everything, paths: []string{
		"absent", "dangling", "dir", "file", "nothing", "to-dir", "to-file", "tool",
	}})
	assertOK(t, r)
	want := everythingTree(t)
	assertResult(t, r.GetResult(), &repb.ActionResult{
		OutputFiles: []*repb.OutputFile{
			outputFile("file", "plain\n", false), outputFile("nothing", "", false), outputFile("tool", "#!/bin/sh\n", true),
		},
		OutputDirectories: []*repb.OutputDirectory{{
			Path: "dir", TreeDigest: digestOf(t, want).Proto(), IsTopologicallySorted: true,
		}},
		OutputSymlinks: []*repb.OutputSymlink{
			{Path: "dangling", Target: "../outside/nowhere"}, {Path: "to-dir", Target: "dir"}, {Path: "to-file", Target: "file"},
		},
	})
	if got := f.treeOf(t, r.GetResult().GetOutputDirectories()[0]); !proto.Equal(got, want) {
		t.Errorf("tree is %v, want %v", got, want)
	}
	for _, content := range []string{"plain\n", "deep\n", "run\n"} {
		f.read(t, digest.Of(digest.SHA256, []byte(content)).Proto())
	}
}

// TestOlderOutputFields sends what clients of API 2.0 send.
func TestOlderOutputFields(t *testing.T) {
	f := newFarm(t)
	// They count on the output directory itself to be there.
	r := f.run(t, spec{
		shell: "test -d dir && test ! -e made/file && echo new > made/file;" + everything,
		files: []string{"absent", "file", "made/file", "to-file"},
		dirs:  []string{"absent-dir", "dir"},
	})
	assertOK(t, r)
	absent := &repb.Tree{Root: &repb.Directory{}}
	assertResult(t, r.GetResult(), &repb.ActionResult{
		OutputFiles: []*repb.OutputFile{outputFile("file", "plain\n", false), outputFile("made/file", "new\n", false)},
		OutputDirectories: []*repb.OutputDirectory{
			{Path: "absent-dir", TreeDigest: digestOf(t, absent).Proto(), IsTopologicallySorted: true},
			{Path: "dir", TreeDigest: digestOf(t, everythingTree(t)).Proto(), IsTopologicallySorted: true},
		},
		//lint:ignore SA1019 the field that clients of API 2.0 read
		OutputFileSymlinks: []*repb.OutputSymlink{{Path: "to-file", Target: "file"}},
	})

	r = f.run(t, spec{shell: "rmdir out; mkdir real; ln -s real out", dirs: []string{"out"}})
	assertOK(t, r)
	assertResult(t, r.GetResult(), &repb.ActionResult{
		//lint:ignore SA1019 the field that clients of API 2.0 read
		OutputDirectorySymlinks: []*repb.OutputSymlink{{Path: "out", Target: "real"}},
	})
	assertCode(t, f.run(t, spec{shell: "mkdir d", files: []string{"d"}}), codes.InvalidArgument, "is a directory")
	assertCode(t, f.run(t, spec{shell: "rmdir f; : > f", dirs: []string{"f"}}), codes.InvalidArgument, "is a file")
}

// TestOverlappingOutputs has outputs that are part of others, as REv2 allows, and outputs that are
// named twice. A file that could be moved into the store for one output must still be there for the
// other.
func TestOverlappingOutputs(t *testing.T) {
	f := newSandboxedFarm(t, vfs.FUSE, func(o *Options) { o.Isolation.Sandboxed, o.Isolation.Sandbox.NoNetwork = true, true })
	inner := &repb.Directory{Files: []*repb.FileNode{fileNode("f", "deep\n")}}
	outer := &repb.Directory{
		Files:       []*repb.FileNode{fileNode("g", "top\n")},
		Directories: []*repb.DirectoryNode{{Name: "e", Digest: digestOf(t, inner).Proto()}},
	}
	files := map[string]*repb.OutputFile{
		"d/g": outputFile("d/g", "top\n", false), "d/./g": outputFile("d/./g", "top\n", false),
	}
	trees := map[string]*repb.Tree{
		"d": {Root: outer, Children: []*repb.Directory{inner}}, "d/e": {Root: inner},
	}
	for _, s := range []spec{
		{paths: []string{"d", "d/e"}},
		{paths: []string{"d/e", "d"}},
		{paths: []string{"d/g", "d"}},
		{paths: []string{"d", "d/g"}},
		{paths: []string{"d/g", "d/./g"}},
		{dirs: []string{"d", "d/e"}},
	} {
		t.Run(strings.Join(append(s.paths, s.dirs...), " "), func(t *testing.T) {
			s.shell = "mkdir -p d/e; echo deep > d/e/f; echo top > d/g"
			r := f.run(t, s)
			assertOK(t, r)
			want := &repb.ActionResult{}
			for _, path := range append(s.paths, s.dirs...) {
				if file := files[path]; file != nil {
					want.OutputFiles = append(want.OutputFiles, file)
					continue
				}
				want.OutputDirectories = append(want.OutputDirectories, &repb.OutputDirectory{
					Path: path, TreeDigest: digestOf(t, trees[path]).Proto(), IsTopologicallySorted: true,
				})
			}
			assertResult(t, r.GetResult(), want)
			f.read(t, digestOfBytes("top\n").Proto())
		})
	}
}

func TestOutputDirectoryFormats(t *testing.T) {
	f := newFarm(t)
	want := everythingTree(t)
	for _, c := range []struct {
		format         repb.Command_OutputDirectoryFormat
		tree, messages bool
	}{
		{repb.Command_TREE_ONLY, true, false},
		{repb.Command_DIRECTORY_ONLY, false, true},
		{repb.Command_TREE_AND_DIRECTORY, true, true},
	} {
		t.Run(c.format.String(), func(t *testing.T) {
			r := f.run(t, spec{shell: everything, paths: []string{"dir"}, format: c.format})
			assertOK(t, r)
			out := r.GetResult().GetOutputDirectories()[0]
			if (out.GetTreeDigest() != nil) != c.tree || (out.GetRootDirectoryDigest() != nil) != c.messages {
				t.Fatalf("output directory is %v", out)
			}
			if !c.messages {
				return
			}
			if got := digestOf(t, want.GetRoot()).Proto(); !proto.Equal(got, out.GetRootDirectoryDigest()) {
				t.Errorf("root directory is %v, want %v", out.GetRootDirectoryDigest(), got)
			}
			for _, m := range append(want.GetChildren(), want.GetRoot()) {
				f.read(t, digestOf(t, m).Proto())
			}
		})
	}
}

// TestUnchangedInput returns unread inputs as outputs. If storage lacks one too, it is reported as
// missing.
func TestUnchangedInput(t *testing.T) {
	f := newFarm(t)
	in := tree{"file": "1", "d/e/f": "4", "d/g": "5", "part/kept": "6"}
	r := f.run(t, spec{
		inputs: in, shell: "echo new > part/new",
		paths: []string{"d", "file", "part"},
	})
	assertOK(t, r)
	inner := &repb.Directory{Files: []*repb.FileNode{fileNode("f", "4")}}
	outer := &repb.Directory{
		Files:       []*repb.FileNode{fileNode("g", "5")},
		Directories: []*repb.DirectoryNode{{Name: "e", Digest: digestOf(t, inner).Proto()}},
	}
	part := &repb.Directory{Files: []*repb.FileNode{fileNode("kept", "6"), fileNode("new", "new\n")}}
	assertDirectory := func(i int, want *repb.Tree) {
		t.Helper()
		if got := f.treeOf(t, r.GetResult().GetOutputDirectories()[i]); !proto.Equal(got, want) {
			t.Errorf("tree is %v, want %v", got, want)
		}
	}
	assertDirectory(0, &repb.Tree{Root: outer, Children: []*repb.Directory{inner}})
	assertDirectory(1, &repb.Tree{Root: part})
	want := []*repb.OutputFile{outputFile("file", "1", false)}
	for i, got := range r.GetResult().GetOutputFiles() {
		if !proto.Equal(got, want[i]) {
			t.Errorf("output file is %v, want %v", got, want[i])
		}
	}
	for _, content := range []string{"1", "4", "5", "6"} {
		if n := f.reads.count(digest.Of(digest.SHA256, []byte(content))); n != 0 {
			t.Errorf("the content of %s was asked for %d times", content, n)
		}
	}
	if use := inputUse(t, r); use.GetFilesRead() != 0 {
		t.Errorf("input use is %v", use)
	}
	r = f.run(t, spec{inputs: tree{"file": absent("nowhere")}, shell: "true", paths: []string{"file"}})
	assertMissing(t, r, digestOfBytes("nowhere"))
}

func fileNode(name, content string) *repb.FileNode {
	return &repb.FileNode{Name: name, Digest: digest.Of(digest.SHA256, []byte(content)).Proto()}
}

// TestWorkingDirectory has outputs relative to it, also above it.
func TestWorkingDirectory(t *testing.T) {
	f := newFarm(t)
	r := f.run(t, spec{
		inputs: tree{"w/d/in": "1"}, dir: "w/d", shell: "cat in > out; cat in > ../../top/out",
		paths: []string{"out", "../../top/out"},
	})
	assertOK(t, r)
	assertResult(t, r.GetResult(), &repb.ActionResult{
		OutputFiles: []*repb.OutputFile{outputFile("out", "1", false), outputFile("../../top/out", "1", false)},
	})
}

// TestOutputsAreLetGo: when what a command printed cannot be stored whole, nothing of it stays
// pinned in the worker's store.
func TestOutputsAreLetGo(t *testing.T) {
	store, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 150_000})
	check(t, err)
	t.Cleanup(func() { check(t, store.Close()) })
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{change: func(o *Options) { o.Store, o.Outputs.Scratch = store, 1<<20 }})
	r := f.run(t, spec{shell: "head -c 100000 /dev/zero; head -c 100001 /dev/zero >&2"})
	assertCode(t, r, codes.ResourceExhausted, "store stderr")
	if had := store.Stats().Bytes; had != 100_000 {
		t.Errorf("the store has %d bytes, not stdout's", had)
	}
	store.Evict(150_000)
	if left := store.Stats().Bytes; left != 0 {
		t.Errorf("%d bytes can never be evicted", left)
	}
}
