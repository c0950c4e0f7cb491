package worker

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
)

func digestOfBytes(s string) digest.Digest { return digest.Of(digest.SHA256, []byte(s)) }

// TestWithOtherRoots runs tests again that say nothing of when inputs are fetched,
// nor of where the command sees them.
func TestWithOtherRoots(t *testing.T) {
	for _, roots := range []string{"memory", "links", "bare links", "sandbox"} {
		for name, test := range map[string]func(*testing.T){
			"bad input": TestBadInput, "output paths": TestOutputPaths, "older output fields": TestOlderOutputFields,
			"action cache": TestActionCache, "timeout": TestTimeout, "cancel": TestCancel, "abort": TestAbort,
		} {
			t.Run(roots+"/"+name, func(t *testing.T) {
				t.Setenv(rootsVariable, roots)
				test(t)
			})
		}
	}
}

// TestInputsAreLinkedFirst: an input that the command does not read counts as missing, too.
func TestInputsAreLinkedFirst(t *testing.T) {
	f := newFarmOn(t, vfs.Options{Method: vfs.HardLink})
	r := f.run(t, spec{inputs: tree{"a/unread": absent("never came"), "b": "b"}, shell: "cat b"})
	assertMissing(t, r, digestOfBytes("never came"))
	r = f.run(t, spec{inputs: tree{"a/tool": executable("#!/bin/sh\necho ran"), "b": "b"}, shell: "a/tool && cat b"})
	assertOK(t, r)
	if got := string(r.GetResult().GetStdoutRaw()); got != "ran\nb" {
		t.Errorf("stdout is %q", got)
	}
	if n := f.reads.count(digestOfBytes("b")); n != 1 {
		t.Errorf("b was read %d times from storage", n)
	}
}

// TestUnchangedLinkedInput: inputs that are also outputs are neither stored again nor confused with
// files that replaced them.
func TestUnchangedLinkedInput(t *testing.T) {
	for _, bare := range []bool{true, false} {
		f := newFarmOn(t, vfs.Options{Method: vfs.HardLink, DisableOverlay: bare})
		r := f.run(t, spec{
			inputs: tree{"in/same": "same", "in/moved": executable("moved"), "in/replaced": "replaced"},
			shell:  "mv in/moved out; rm in/replaced; echo new > in/replaced; ln in/same linked",
			paths:  []string{"in/same", "out", "in/replaced", "linked"},
		})
		assertOK(t, r)
		want := map[string]string{"in/same": "same", "out": "moved", "in/replaced": "new\n", "linked": "same"}
		for _, o := range r.GetResult().GetOutputFiles() {
			if content := want[o.GetPath()]; o.GetDigest().GetHash() != digestOfBytes(content).Hash() ||
				f.read(t, o.GetDigest()) != content || o.GetIsExecutable() != (content == "moved") {
				t.Errorf("output %v", o)
			}
			delete(want, o.GetPath())
		}
		if len(want) > 0 {
			t.Errorf("outputs that are not there: %v", want)
		}
	}
}

// TestInputWrittenInPlace: without an overlay the action fails, nothing is
// cached, and the store and the next action have the input as it was.
func TestInputWrittenInPlace(t *testing.T) {
	f := newFarmOn(t, vfs.Options{Method: vfs.HardLink, DisableOverlay: true})
	in := tree{"src/header.h": "int x;"}
	j := f.start(t, spec{inputs: in, shell: "echo 'int y' > src/header.h; cp src/header.h out", paths: []string{"out"}})
	assertCode(t, j.result(t), codes.Aborted, "src/header.h")
	f.assertNotCached(t, j)
	b, err := f.local.ReadBlob(t.Context(), digestOfBytes("int x;"))
	check(t, err)
	if string(b) != "int x;" {
		t.Errorf("the store has %q", b)
	}
	r := f.run(t, spec{inputs: in, shell: "cat src/header.h"})
	assertOK(t, r)
	if got := string(r.GetResult().GetStdoutRaw()); got != "int x;" {
		t.Errorf("the next action reads %q", got)
	}
}

// TestInputWrittenAboveOverlay: with one it is a change like any other.
func TestInputWrittenAboveOverlay(t *testing.T) {
	f := newFarmOn(t, vfs.Options{Method: vfs.HardLink})
	in := tree{"src/header.h": "int x;"}
	r := f.run(t, spec{inputs: in, shell: "echo 'int y' > src/header.h", paths: []string{"src/header.h"}})
	assertOK(t, r)
	if got := f.read(t, r.GetResult().GetOutputFiles()[0].GetDigest()); got != "int y\n" {
		t.Errorf("output is %q", got)
	}
	r = f.run(t, spec{inputs: in, shell: "cat src/header.h"})
	assertOK(t, r)
	if got := string(r.GetResult().GetStdoutRaw()); got != "int x;" {
		t.Errorf("the next action reads %q", got)
	}
}

// TestInputsBelongToTheCommand: whatever layer shows the inputs, a command in a sandbox finds the
// same, and may change it without affecting others.
func TestInputsBelongToTheCommand(t *testing.T) {
	const script = `stat -c '%n %u %g %a' in ln big big/f1 sub sub/tool
echo more >> in && chmod 755 big/f1 && echo more >> big/f1 && touch sub/tool && mv sub/tool big/f2 && truncate -s 1 big/f3 &&
cat in big/f1 big/f2 big/f3 && stat -c '%n %u %g %a' in big/f1 big/f2 big/f3`
	const want = `in 0 0 444
ln 0 0 777
big 0 0 755
big/f1 0 0 444
sub 0 0 755
sub/tool 0 0 555
inputmore
file 1more
toolfin 0 0 444
big/f1 0 0 755
big/f2 0 0 555
big/f3 0 0 444
`
	for name, o := range map[string]vfs.Options{"fuse": {Method: vfs.FUSE}, "links": {Method: vfs.HardLink}} {
		t.Run(name, func(t *testing.T) {
			f := newRottingFarm(t, o, farmOptions{sandbox: &sandbox.Options{Show: []string{gates(t)}}, own: true})
			in := tree{"in": "input", "sub/tool": executable("tool"), "ln": symlink("in")}
			for i := range 300 {
				in[fmt.Sprintf("big/f%d", i)] = fmt.Sprintf("file %d", i)
			}
			for i := range 4 { // from the third on, big is the same as in the earlier ones
				in["own"] = fmt.Sprint(i)
				r := f.run(t, spec{inputs: in, shell: script})
				assertOK(t, r)
				if got := string(r.GetResult().GetStdoutRaw()); got != want {
					t.Errorf("run %d: %q, want %q", i, got, want)
				}
			}
			f.assertRuns(t, 0, 0)
		})
	}
}
