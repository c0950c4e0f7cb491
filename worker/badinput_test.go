package worker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestBadInput shows that each fault is that action's alone: it gets the right
// code and a clear text, and the same worker runs the next action.
// latin uploads a directory of one file whose name is not UTF-8, and which
// protobuf would refuse to encode.
func (f *farm) latin(t *testing.T, content string) digest.Digest {
	t.Helper()
	m := &repb.Directory{Files: []*repb.FileNode{{
		Name: "caf\x01", Digest: digest.Of(digest.SHA256, []byte(content)).Proto(),
	}}}
	_, raw, err := digest.OfMessage(digest.SHA256, m)
	check(t, err)
	return f.blob(t, strings.Replace(string(raw), "caf\x01", "caf\xe9", 1))
}

// TestNamesInAnyEncoding has an input whose name is "café" in Latin-1.
func TestNamesInAnyEncoding(t *testing.T) {
	f := newFarm(t)
	f.blob(t, "content")
	r := f.run(t, spec{inputs: tree{"d": subtree(f.latin(t, "content"))}, shell: "cat d/$(printf 'caf\\351') > out", paths: []string{"out"}})
	assertOK(t, r)
	if got := f.read(t, r.GetResult().GetOutputFiles()[0].GetDigest()); got != "content" {
		t.Errorf("output is %q", got)
	}
}

func TestBadInput(t *testing.T) {
	f := newFarm(t)
	absentDigest := digest.Of(digest.SHA256, []byte("nobody has this"))
	garbage := f.blob(t, "\xff\xff no message")
	empty := digest.SHA256.Empty()
	withFile := func(names ...string) digest.Digest {
		m := &repb.Directory{}
		for _, name := range names {
			m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: empty.Proto()})
		}
		return f.message(t, m)
	}
	withDirectory := func(name string) digest.Digest {
		return f.message(t, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: name, Digest: empty.Proto()}}})
	}
	ofSize := func(size int64) digest.Digest {
		return f.message(t, &repb.Directory{Files: []*repb.FileNode{{Name: "a", Digest: &repb.Digest{Hash: absentDigest.Hash(), SizeBytes: size}}}})
	}
	lie := f.blob(t, "these bytes will change")
	lying := f.put(t, tree{"lie": "these bytes will change"})
	f.falsify(t, lie)
	lyingDirectory := f.put(t, tree{"some": "directory"})
	f.falsify(t, lyingDirectory)
	list := func(d digest.Digest) spec { return spec{inputs: tree{"d": subtree(d)}, shell: "ls d"} }

	f.blob(t, "content")
	latin := f.latin(t, "content")
	latinLie := f.blob(t, "this will be a lie")
	f.falsify(t, latinLie)
	latinLying := f.latin(t, "this will be a lie")

	for _, c := range []struct {
		name string
		spec spec
		code codes.Code
		text string
	}{
		{"output with a name that is not UTF-8", spec{shell: "mkdir d; touch d/$(printf 'caf\\351')", paths: []string{"d"}}, codes.InvalidArgument, "caf\\xe9"},
		{"input of that kind returned", spec{inputs: tree{"d": subtree(latin)}, paths: []string{"d"}}, codes.InvalidArgument, "caf\\xe9"},
		{"link in an output that is not UTF-8", spec{shell: "mkdir d; ln -s $(printf 'caf\\351') d/l", paths: []string{"d"}}, codes.InvalidArgument, "caf\\xe9"},
		{"link as an output that is not UTF-8", spec{shell: "ln -s $(printf 'caf\\351') l", paths: []string{"l"}}, codes.InvalidArgument, "caf\\xe9"},
		{"lying file with such a name", spec{root: latinLying, shell: "cat caf*"}, codes.FailedPrecondition, latinLie.Hash()},
		{"slash in a name", spec{root: withFile("a/b")}, codes.InvalidArgument, "slash"},
		{"dot dot as a name", spec{root: withFile("..")}, codes.InvalidArgument, "reserved"},
		{"dot dot as a directory", spec{root: withDirectory("..")}, codes.InvalidArgument, "reserved"},
		{"NUL in a name", spec{root: withFile("a\x00b")}, codes.InvalidArgument, "NUL"},
		{"empty name", spec{root: withFile("")}, codes.InvalidArgument, "empty"},
		{"duplicate name", spec{root: withFile("a", "a")}, codes.InvalidArgument, "more than once"},
		{"slash in a nested name", list(withFile("a/b")), codes.InvalidArgument, "slash"},
		{"dot dot nested", list(withDirectory("..")), codes.InvalidArgument, "reserved"},
		{"nested duplicate", list(withFile("a", "a")), codes.InvalidArgument, "more than once"},
		{"lying file", spec{root: lying, shell: "cat lie"}, codes.FailedPrecondition, lie.Hash()},
		{"lying root", spec{root: lyingDirectory}, codes.FailedPrecondition, lyingDirectory.Hash()},
		{"lying directory", list(lyingDirectory), codes.FailedPrecondition, lyingDirectory.Hash()},
		{"undecodable root", spec{root: garbage}, codes.InvalidArgument, garbage.Hash()},
		{"undecodable directory", list(garbage), codes.InvalidArgument, garbage.Hash()},
		{"missing root", spec{root: absentDigest}, codes.FailedPrecondition, absentDigest.Hash()},
		{"missing directory", list(absentDigest), codes.FailedPrecondition, absentDigest.Hash()},
		{"missing directory, exit code hidden", spec{inputs: tree{"d": subtree(absentDigest)}, shell: "ls d; true"}, codes.FailedPrecondition, absentDigest.Hash()},
		{"missing file", spec{inputs: tree{"a": absent("nobody has this")}, shell: "cat a"}, codes.FailedPrecondition, absentDigest.Hash()},
		{"missing file, the largest there is", spec{root: ofSize(digest.MaxSizeBytes), shell: "tail -c 1 a; cat a"}, codes.FailedPrecondition, "not found"},
		{"file of an impossible size", spec{root: ofSize(math.MaxInt64), shell: "tail -c 1 a; cat a"}, codes.InvalidArgument, "size"},
		{"missing parent of an output", spec{inputs: tree{"d": subtree(absentDigest)}, paths: []string{"d/x"}}, codes.FailedPrecondition, absentDigest.Hash()},
		{"missing working directory", spec{inputs: tree{"d": subtree(absentDigest)}, dir: "d", shell: "ls"}, codes.FailedPrecondition, absentDigest.Hash()},
		{"missing directory in an output", spec{inputs: tree{"d/e": subtree(absentDigest)}, paths: []string{"d"}}, codes.FailedPrecondition, absentDigest.Hash()},
		{"missing directory in a changed output", spec{inputs: tree{"d/e": subtree(absentDigest)}, shell: "touch d/new", paths: []string{"d"}}, codes.FailedPrecondition, absentDigest.Hash()},
		{"lying directory in an output", spec{inputs: tree{"d/e": subtree(lyingDirectory)}, paths: []string{"d"}}, codes.FailedPrecondition, lyingDirectory.Hash()},
		{"missing command", spec{command: absentDigest}, codes.FailedPrecondition, absentDigest.Hash()},
		{"undecodable command", spec{command: garbage}, codes.InvalidArgument, garbage.Hash()},
		{"no arguments", spec{args: []string{}}, codes.InvalidArgument, "no arguments"},
		{"absolute output", spec{paths: []string{"/etc/passwd"}}, codes.InvalidArgument, `"/etc/passwd" is absolute`},
		{"output above the root", spec{paths: []string{"a/../../b"}}, codes.InvalidArgument, "leaves the input root"},
		{"output above the working directory's root", spec{inputs: tree{"w/": nil}, dir: "w", paths: []string{"../../b"}}, codes.InvalidArgument, "leaves the input root"},
		{"working directory above the root", spec{dir: ".."}, codes.InvalidArgument, "leaves the input root"},
		{"working directory missing", spec{dir: "nowhere"}, codes.InvalidArgument, `"nowhere"`},
		{"working directory is a file", spec{inputs: tree{"w": "x"}, dir: "w"}, codes.InvalidArgument, "not a directory"},
		{"parent of an output is a symlink out", spec{inputs: tree{"out": symlink("/tmp")}, paths: []string{"out/new/x"}}, codes.InvalidArgument, "out/new/x"},
		{"symlink out followed for an output", spec{shell: "rmdir out && ln -s /etc out", paths: []string{"out/passwd"}}, codes.InvalidArgument, "out/passwd"},
		{"symlink above followed for an output", spec{shell: "rmdir out && ln -s ../../.. out", paths: []string{"out/passwd"}}, codes.InvalidArgument, "out/passwd"},
		{"no such command", spec{args: []string{"bin/none"}}, codes.InvalidArgument, "bin/none"},
		{"no such command in PATH", spec{args: []string{"no-such-command-anywhere"}}, codes.InvalidArgument, "no-such-command-anywhere"},
		{"command is a directory", spec{inputs: tree{"bin/": nil}, args: []string{"./bin"}}, codes.InvalidArgument, "directory"},
		{"command is not executable", spec{inputs: tree{"tool": "#!/bin/sh\n"}, args: []string{"./tool"}}, codes.InvalidArgument, "tool"},
		{"named pipe as output", spec{shell: "mkfifo p", paths: []string{"p"}}, codes.InvalidArgument, "named pipe"},
		{"named pipe in an output directory", spec{shell: "mkdir d; mkfifo d/p", paths: []string{"d"}}, codes.InvalidArgument, `"d/p"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := f.start(t, c.spec)
			r := j.result(t)
			assertCode(t, r, c.code, c.text)
			for _, d := range []digest.Digest{absentDigest, lie, latinLie, lyingDirectory} {
				if c.text == d.Hash() {
					assertMissing(t, r, d) // storage has set aside what lies
				}
			}
			f.assertNotCached(t, j)
			f.assertGood(t)
		})
	}
}

// TestAllThatIsMissing has a command that reads one of several inputs that are missing everywhere.
// The error must name all of them.
func TestAllThatIsMissing(t *testing.T) {
	f := newFarm(t)
	of := func(content string) digest.Digest { return digest.Of(digest.SHA256, []byte(content)) }
	inputs := tree{
		"a": absent("one"), "d/b": absent("two"), "d/e/c": absent("three"), "there": "x", "same": absent("one"),
		"gone": subtree(of("folder")),
	}
	for name, s := range map[string]spec{
		"read":  {inputs: inputs, shell: "cat d/b; true"},
		"begun": {inputs: inputs, shell: "ls gone; true"},
	} {
		t.Run(name, func(t *testing.T) {
			r := f.run(t, s)
			assertCode(t, r, codes.FailedPrecondition, "not found")
			var violations int
			for _, detail := range status.FromProto(r.GetStatus()).Details() {
				violations += len(detail.(*errdetails.PreconditionFailure).GetViolations())
			}
			for _, content := range []string{"one", "two", "three", "folder"} {
				assertMissing(t, r, of(content))
			}
			if violations != 4 {
				t.Errorf("%d violations, want 4: %v", violations, r.GetStatus())
			}
		})
	}
}

// assertMissing fails the test unless the client is told to upload d.
func assertMissing(t *testing.T, r *repb.ExecuteResponse, d digest.Digest) {
	t.Helper()
	for _, detail := range status.FromProto(r.GetStatus()).Details() {
		failure, ok := detail.(*errdetails.PreconditionFailure)
		if !ok {
			continue
		}
		want := fmt.Sprintf("blobs/%s/%d", d.Hash(), d.SizeBytes())
		if slices.ContainsFunc(failure.GetViolations(), func(v *errdetails.PreconditionFailure_Violation) bool {
			return v.GetType() == "MISSING" && v.GetSubject() == want
		}) {
			return
		}
	}
	t.Errorf("status %v has no violation that names %s", r.GetStatus(), d)
}

// TestHugeDirectory has 100,000 files, of which storage has only one.
func TestHugeDirectory(t *testing.T) {
	f := newFarm(t)
	m := &repb.Directory{}
	for i := range 100_000 {
		content := fmt.Sprintf("content %d", i)
		m.Files = append(m.Files, &repb.FileNode{
			Name: fmt.Sprintf("f%06d", i), Digest: digest.Of(digest.SHA256, []byte(content)).Proto(),
		})
	}
	f.blob(t, "content 54321")
	j := f.start(t, spec{root: f.message(t, m), shell: "ls -f | grep -c ^f; cat f054321"})
	r := j.result(t)
	assertOK(t, r)
	if got, want := string(r.GetResult().GetStdoutRaw()), "100000\ncontent 54321"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	// The command, the root and the file.
	if use := inputUse(t, r); use.GetBlobsFetched() != 3 || use.GetFilesRead() != 1 {
		t.Errorf("input use is %v", use)
	}
	f.assertGood(t)
}

// TestMillionfoldDirectory has one directory at a million paths.
func TestMillionfoldDirectory(t *testing.T) {
	f := newFarm(t)
	d := f.put(t, tree{"file": "found"})
	for range 3 {
		level := tree{}
		for i := range 100 {
			level[fmt.Sprintf("%02d", i)] = subtree(d)
		}
		d = f.put(t, level)
	}
	r := f.run(t, spec{root: d, shell: "ls 42/17; cat 99/00/63/file"})
	assertOK(t, r)
	if got := string(r.GetResult().GetStdoutRaw()); !strings.HasSuffix(got, "99\nfound") {
		t.Errorf("printed %q", got)
	}
	if use := inputUse(t, r); use.GetBlobsFetched() != 6 {
		t.Errorf("input use is %v; want the command, four directories and a file", use)
	}
	f.assertGood(t)
}

// TestMillionfoldOutput returns such a directory unchanged as an output. If its messages have an
// unusual encoding, the messages of the output must have the usual one.
func TestMillionfoldOutput(t *testing.T) {
	f := newFarm(t)
	millionfold := func(d digest.Digest) digest.Digest {
		for range 3 {
			level := tree{}
			for i := range 100 {
				level[fmt.Sprintf("%02d", i)] = subtree(d)
			}
			d = f.put(t, level)
		}
		return d
	}
	usual := f.put(t, tree{"file": "never read", "link": symlink("file")})
	want := millionfold(usual)
	m := &repb.Directory{}
	check(t, proto.Unmarshal([]byte(f.read(t, usual.Proto())), m))
	links, err := proto.Marshal(&repb.Directory{Symlinks: m.GetSymlinks()})
	check(t, err)
	files, err := proto.Marshal(&repb.Directory{Files: m.GetFiles()})
	check(t, err)
	unusual := f.blob(t, string(links)+string(files)) // files come first elsewhere
	for name, in := range map[string]digest.Digest{"usual": want, "unusual": millionfold(unusual)} {
		t.Run(name, func(t *testing.T) {
			r := f.run(t, spec{inputs: tree{"in": subtree(in)}, shell: "exit 1", paths: []string{"in"}})
			if r.GetStatus().GetCode() != 0 || len(r.GetResult().GetOutputDirectories()) != 1 {
				t.Fatalf("response is %v", r)
			}
			out := f.treeOf(t, r.GetResult().GetOutputDirectories()[0])
			if got := digestOf(t, out.GetRoot()); got != want || len(out.GetChildren()) != 3 {
				t.Errorf("tree has root %s, want %s, and %d children, want 3", got, want, len(out.GetChildren()))
			}
		})
	}
}

// TestLongPath has outputs at paths of nearly the 4,096 bytes that the kernel takes.
func TestLongPath(t *testing.T) {
	f := newFarm(t)
	for _, c := range []struct {
		name, component string
		times           int
	}{
		{"few long names", strings.Repeat("n", 199), 20},
		{"many short names", "n", 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			long := strings.Repeat(c.component+"/", c.times)
			long = long[:len(long)-1]
			r := f.run(t, spec{shell: "echo deep > " + long, paths: []string{long}})
			assertOK(t, r)
			files := r.GetResult().GetOutputFiles()
			if len(files) != 1 || files[0].GetPath() != long || f.read(t, files[0].GetDigest()) != "deep\n" {
				t.Errorf("output files are %v", files)
			}
			f.assertGood(t)
		})
	}
}
