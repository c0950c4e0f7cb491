package worker

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/outputs"
)

const copyBytes = 256 << 10

// bring makes a whole tree local to the worker.
func (f *farm) bring(t *testing.T, root digest.Digest) {
	t.Helper()
	raw := f.read(t, root.Proto())
	check(t, f.local.PutBytes(t.Context(), root, []byte(raw)))
	m := &repb.Directory{}
	check(t, proto.Unmarshal([]byte(raw), m))
	for _, n := range m.GetFiles() {
		d, err := digest.FromProto(digest.SHA256, n.GetDigest())
		check(t, err)
		check(t, f.local.PutBytes(t.Context(), d, []byte(f.read(t, n.GetDigest()))))
	}
	for _, n := range m.GetDirectories() {
		d, err := digest.FromProto(digest.SHA256, n.GetDigest())
		check(t, err)
		f.bring(t, d)
	}
}

// copiedAndMounted returns two farms, of which one copies input roots.
func copiedAndMounted(t *testing.T, few farmOptions) map[string]*farm {
	t.Helper()
	return map[string]*farm{
		"copied":  newFarmWith(t, vfs.Options{Method: vfs.FUSE, CopyBytes: copyBytes}, nil, few),
		"mounted": newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, few),
	}
}

// answer is what a client gets, as text.
func (f *farm) answer(t *testing.T, s spec) string {
	keep := s.env["PROPERTIES"] != ""
	t.Helper()
	if s.root.IsZero() {
		s.root = f.put(t, s.inputs)
	}
	f.bring(t, s.root)
	r := f.run(t, s)
	result := proto.CloneOf(r.GetResult())
	result.ExecutionMetadata = nil
	var b strings.Builder
	if reads := s.env["READS"]; reads != "" {
		for _, packed := range r.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
			var u actionstats.InputRoot
			if packed.MessageIs(&u) && packed.UnmarshalTo(&u) == nil {
				if reads == "directories" {
					fmt.Fprintf(&b, "read %d directories, ", u.GetDirectoriesRead())
				}
				fmt.Fprintf(&b, "read %d files, %d bytes, incomplete %t, root %d files, %d bytes\n",
					u.GetFilesRead(), u.GetBytesRead(), u.GetReadsIncomplete(), u.GetRootFiles(), u.GetRootBytes())
			}
		}
	}
	fmt.Fprintf(&b, "status %d %s\nexit %d\nstdout %s\nstderr %s\n", r.GetStatus().GetCode(), r.GetStatus().GetMessage(),
		result.GetExitCode(), result.GetStdoutRaw(), result.GetStderrRaw())
	for _, o := range result.GetOutputFiles() {
		fmt.Fprintf(&b, "file %s %t %q\n", o.GetPath(), o.GetIsExecutable(), f.read(t, o.GetDigest()))
	}
	for _, o := range result.GetOutputDirectories() {
		fmt.Fprintf(&b, "directory %s %t %t", o.GetPath(), o.GetRootDirectoryDigest() != nil, o.GetIsTopologicallySorted())
		if o.GetTreeDigest() != nil {
			tree := f.treeOf(t, o)
			if !keep {
				bare(tree)
			}
			fmt.Fprintf(&b, " %s %v", digestOf(t, tree), tree)
		}
		b.WriteByte('\n')
	}
	//lint:ignore SA1019 the fields that clients of API 2.0 read
	for _, o := range slices.Concat(result.GetOutputSymlinks(), result.GetOutputFileSymlinks(), result.GetOutputDirectorySymlinks()) {
		fmt.Fprintf(&b, "symlink %s %s\n", o.GetPath(), o.GetTarget())
	}
	return b.String()
}

// bare removes the properties of all nodes, which an unchanged directory has only if it is mounted.
func bare(tree *repb.Tree) {
	tree.Children = slices.Clone(tree.GetChildren())
	for _, d := range append(tree.GetChildren(), tree.GetRoot()) {
		for _, n := range d.GetFiles() {
			n.NodeProperties = nil
		}
		for _, n := range d.GetSymlinks() {
			n.NodeProperties = nil
		}
		for _, n := range d.GetDirectories() {
			n.Digest = nil // depends on properties
		}
	}
}

// assertAlike runs an action on both farms.
func assertAlike(t *testing.T, farms map[string]*farm, s spec) {
	t.Helper()
	got, want := farms["copied"].answer(t, s), farms["mounted"].answer(t, s)
	if got != want {
		t.Errorf("%+v\ncopied:\n%s\nmounted:\n%s", s, got, want)
	}
}

// TestCopiedRootsAnswerTheSame runs random commands with random outputs on random trees.
func TestCopiedRootsAnswerTheSame(t *testing.T) {
	for name, few := range map[string]farmOptions{
		"bare": {}, "sandbox": {sandbox: &sandbox.Options{Show: []string{gates(t)}}},
		"own": {sandbox: &sandbox.Options{Show: []string{gates(t)}}, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			farms := copiedAndMounted(t, few)
			for seed := range uint64(12) {
				r := rand.New(rand.NewPCG(seed, 7))
				s := spec{root: randomTree(t, r, farms, 2)}
				s.shell, s.paths = randomScript(r)
				s.env = map[string]string{"SEED": fmt.Sprint(seed)}
				if r.IntN(3) == 0 {
					s.format = repb.Command_TREE_AND_DIRECTORY
				}
				if r.IntN(4) == 0 {
					s.dir = "d"
				}
				if r.IntN(2) == 0 && onlyReads(s.shell) {
					s.env["READS"] = "1"
				}
				assertAlike(t, farms, s)
			}
		})
	}
}

// onlyReads is false for a script with a command that counts as a read for one kind of root alone:
// truncate(2), or an open that truncates.
func onlyReads(script string) bool {
	for _, s := range []string{"> ", ">>", "<>", "truncate", "sed", "touch"} {
		if strings.Contains(script, s) {
			return false
		}
	}
	return true
}

var randomPaths = []string{"a", "b", "x", "l", "d", "d/a", "d/b", "d/x", "d/l", "d/d", "d/d/a", "d/d/x", "e", "e/a", "new", "d/new", "out/f"}

func randomTree(t *testing.T, r *rand.Rand, farms map[string]*farm, depth int) digest.Digest {
	m := &repb.Directory{}
	properties := func(executable bool) *repb.NodeProperties {
		if r.IntN(3) > 0 {
			return nil
		}
		p := &repb.NodeProperties{}
		if r.IntN(2) == 0 {
			p.Mtime = &timestamppb.Timestamp{Seconds: int64(r.IntN(1 << 30))}
		}
		if r.IntN(2) == 0 {
			mode := uint32(r.IntN(0o10000)) &^ 0o111
			if executable {
				mode |= 0o100
			}
			p.UnixMode = wrapperspb.UInt32(mode)
		}
		return p
	}
	put := func(content string) (d digest.Digest) {
		for _, f := range farms {
			d = f.blob(t, content)
		}
		return d
	}
	for _, name := range []string{"a", "b", "x"} {
		if r.IntN(4) == 0 {
			continue
		}
		content := []string{"", "same", "other " + name, "#!/bin/sh\necho ran $0\n", strings.Repeat("long", 3000)}[r.IntN(5)]
		executable := r.IntN(2) == 0 || name == "x"
		m.Files = append(m.Files, &repb.FileNode{
			Name: name, Digest: put(content).Proto(), IsExecutable: executable, NodeProperties: properties(executable),
		})
	}
	if r.IntN(2) == 0 {
		m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{
			Name: "l", Target: []string{"a", "d", "../a", "nowhere", "/etc/hostname", "d/../a", "."}[r.IntN(7)], NodeProperties: properties(false),
		})
	}
	if depth > 0 {
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: "d", Digest: randomTree(t, r, farms, depth-1).Proto()})
		if r.IntN(2) == 0 {
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: "e", Digest: randomTree(t, r, farms, 0).Proto()})
		}
	}
	sortDirectory(m)
	var d digest.Digest
	for _, f := range farms {
		d = f.message(t, m)
	}
	return d
}

func randomScript(r *rand.Rand) (script string, declared []string) {
	var b strings.Builder
	p := func() string { return randomPaths[r.IntN(len(randomPaths))] }
	for range 3 + r.IntN(8) {
		a, c := p(), p()
		b.WriteString([]string{
			"cat " + a, "stat -c '%A %Y %s' " + a, "rm -rf " + a, "mv -T " + a + " " + c, "cp -a -T " + a + " " + c, "echo new > " + a,
			"echo more >> " + a, fmt.Sprintf("chmod %o %s", r.IntN(0o1000), a), "ln " + a + " " + c, "ln -s " + a + " " + c, "mkdir -p " + a,
			"touch " + a, "./" + a, "truncate -s 3 " + a, "readlink " + a, "find . -printf '%p %M\\n' | sort", "ls " + a + " | sort",
			"mkdir -p out; mv " + a + " out/f", "test -w " + a, "test -x " + a, "chmod -R u+w " + a, "touch -h -d @1234 " + a,
			"(sleep 30 < " + a + " >/dev/null &) 2> /dev/null", "exec 5<>" + a, "sed -i s/a/b/ " + a, "rmdir " + a, "rm -f " + a + " && mkdir " + a,
		}[r.IntN(27)])
		b.WriteString("; ")
	}
	fmt.Fprintf(&b, "exit %d", r.IntN(2))
	for range 1 + r.IntN(5) {
		if a := p(); !slices.Contains(declared, a) {
			declared = append(declared, a)
		}
	}
	slices.Sort(declared)
	return b.String(), declared
}

// TestCopiedInputsAreNoOutputsToCount: docs say that unchanged inputs among the outputs do not count.
func TestCopiedInputsAreNoOutputsToCount(t *testing.T) {
	farms := copiedAndMounted(t, farmOptions{change: func(o *Options) { o.Outputs = outputs.Policy{Files: 2} }})
	assertAlike(t, farms, spec{inputs: tree{"dir/a": "a", "dir/b": "b", "dir/c": "c"}, shell: ":", paths: []string{"dir"}})
}

// TestCopiedProperties returns an input directory whose nodes have properties.
func TestCopiedProperties(t *testing.T) {
	farms := copiedAndMounted(t, farmOptions{})
	var root digest.Digest
	for _, f := range farms {
		dir := f.message(t, &repb.Directory{Files: []*repb.FileNode{{
			Name: "a", Digest: f.blob(t, "a").Proto(), NodeProperties: &repb.NodeProperties{UnixMode: wrapperspb.UInt32(0o644), Mtime: &timestamppb.Timestamp{Seconds: 5}},
		}}})
		root = f.message(t, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "dir", Digest: dir.Proto()}}})
	}
	assertAlike(t, farms, spec{root: root, shell: ":", paths: []string{"dir"}, env: map[string]string{"PROPERTIES": "kept"}})
}

// TestRootIsCopied is for the tests of this file.
func TestRootIsCopied(t *testing.T) {
	f := copiedAndMounted(t, farmOptions{})["copied"]
	s := spec{inputs: tree{"a": "a"}, shell: "pwd -P"}
	if got := f.answer(t, s); !strings.Contains(got, filepath.Join("upper", ".plain")) {
		t.Error(got)
	}
}

// TestCopiedDirectoriesRead: only directories in which the command looked for something were read.
func TestCopiedDirectoriesRead(t *testing.T) {
	farms := copiedAndMounted(t, farmOptions{})
	in := tree{"a": "a", "b/c/d": "d", "e/f": "f", "g/h": "h"}
	for _, shell := range []string{":", "cat a", "cat b/c/d", "ls b"} {
		assertAlike(t, farms, spec{inputs: in, shell: shell, env: map[string]string{"READS": "directories"}})
	}
}

// TestCopiedInputsThatChange runs commands that change their inputs and cover it up, or put something
// else in their place.
func TestCopiedInputsThatChange(t *testing.T) {
	farms := copiedAndMounted(t, farmOptions{})
	in := tree{"a": "aaaa", "b": "bbbb", "d/x": "x", "d/y/z": "z", "e/x": "x", "e/y/z": "z"}
	for _, shell := range []string{
		"chmod u+w a; touch -r a t; printf aaab > a; touch -r t a; chmod u-w a",
		"chmod u+w a; touch -r a t; truncate -s 0 a; truncate -s 4 a; touch -r t a; chmod u-w a",
		"rm b; ln a b",
		"rm d/x; ln e/x d/x; touch -r e d",
		"rm -r d; ln -s e d",
		"mv d t; mv e d; mv t e",
		"rm -r d; cp -a e d",
		"rm d/x; mkfifo d/x; touch -r e d",
		"rm a; mkfifo a",
		"chmod 0 a d/x; chmod 7755 d/y",
		"touch -d @946684800.5 d/y/z",
	} {
		assertAlike(t, farms, spec{inputs: in, shell: shell, paths: []string{"a", "b", "d", "e"}})
	}
}
