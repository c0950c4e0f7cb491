package worker

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs"
)

// arriveAbove is what the store of a farm waits for before it is read: less than that of a worker, as
// the race detector looks at each byte that is copied.
const arriveAbove = 2 << 20

// largeInput is more than the store waits for before it is read.
func largeInput(name string) string { return inputOf(arriveAbove+256<<10, name) }

// inputOf returns an input of little more than size bytes.
func inputOf(size int, name string) string {
	return name + strings.Repeat(fmt.Sprintf("%15s\n", name), size/16)
}

func TestLargeInputs(t *testing.T) {
	f := newFarm(t)
	content := largeInput("large")
	d := f.blob(t, content)
	s := spec{
		inputs: tree{"large": content, "dir/again": content},
		shell:  "tail -c 6 dir/again; head -c 5 large; cmp large dir/again && cp large copy",
		paths:  []string{"copy", "large"},
	}
	for range 2 {
		r := f.run(t, s)
		assertOK(t, r)
		if got := string(r.GetResult().GetStdoutRaw()); got != "large\nlarge" {
			t.Errorf("printed %q", got)
		}
		for _, out := range r.GetResult().GetOutputFiles() {
			if out.GetDigest().GetHash() != d.Hash() {
				t.Errorf("output %v", out)
			}
		}
		s.doNotCache = true // another action
	}
	if !f.local.Contains(d) {
		t.Error("the input was not kept")
	}
}

// A large input is read before its digest is known to be right. That it was not
// must be found out before the result is believed, however little was read.
func TestLargeInputsThatAreWrong(t *testing.T) {
	f := newFarm(t)
	lying := largeInput("lie")
	lie := f.blob(t, lying)
	root := f.put(t, tree{"in": lying, "small": "x"})
	f.falsify(t, lie)
	missing := digest.Of(digest.SHA256, []byte(largeInput("missing")))

	for _, c := range []struct {
		name string
		spec spec
		code codes.Code
		text string
	}{
		{"read", spec{root: root, shell: "cat in"}, codes.FailedPrecondition, lie.Hash()},
		{"begun", spec{root: root, shell: "head -c 3 in; exit 0"}, codes.FailedPrecondition, lie.Hash()},
		{"its end", spec{root: root, shell: "tail -c 3 in; exit 0"}, codes.FailedPrecondition, lie.Hash()},
		{"copied", spec{root: root, shell: "cp in out/copy", paths: []string{"out/copy"}}, codes.FailedPrecondition, lie.Hash()},
		{"missing", spec{inputs: tree{"in": absent(largeInput("missing"))}, shell: "head -c 3 in; exit 0"}, codes.FailedPrecondition, missing.Hash()},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := f.start(t, c.spec)
			r := j.result(t)
			assertCode(t, r, c.code, c.text)
			if c.name == "missing" {
				assertMissing(t, r, missing)
			} else {
				assertMissing(t, r, lie) // storage has set it aside
			}
			f.assertNotCached(t, j)
			f.assertGood(t)
		})
	}
	// A command that does not read it is not affected.
	assertOK(t, f.run(t, spec{root: root, shell: "cat small; ls -l in"}))
}

// TestStorageThatLies: a storage that does not verify blobs cannot get wrong bytes into a result,
// not even with a part that the command reads before the rest has arrived.
func TestStorageThatLies(t *testing.T) {
	f := newFarm(t)
	content := largeInput("the storage lies")
	lie := f.blob(t, content)
	f.reads.lie(lie, math.MaxInt)
	in := tree{"in": content}
	for _, s := range []spec{
		{inputs: in, shell: "cat in"},
		{inputs: in, shell: "head -c 3 in; exit 0"},
		{inputs: in, shell: "cp in out/copy", paths: []string{"out/copy"}},
		// It is the worker that reads it, after the command.
		{inputs: tree{"d/in": content}, shell: "rmdir link && ln -s d link", paths: []string{"link/in"}},
	} {
		j := f.start(t, s)
		assertCode(t, j.result(t), codes.DataLoss, lie.Hash())
		f.assertNotCached(t, j)
		f.assertGood(t)
	}
}

// TestLargeInputThatArrivesWrongOnce is fetched again, and the command is run again: its client
// sees nothing of it.
func TestLargeInputThatArrivesWrongOnce(t *testing.T) {
	for name, shell := range map[string]string{"its begin": "head -c 3 in > out", "all": "cat in > out", "its end": "tail -c 3 in > out"} {
		t.Run(name, func(t *testing.T) {
			f := newRottingFarm(t, vfs.Options{Method: vfs.FUSE}, farmOptions{})
			content := largeInput("once")
			f.reads.lie(f.blob(t, content), 1)
			j := f.start(t, spec{inputs: tree{"in": content}, shell: shell, paths: []string{"out"}})
			r := j.result(t)
			want := content
			if strings.HasPrefix(shell, "head") {
				want = content[:3]
			} else if strings.HasPrefix(shell, "tail") {
				want = content[len(content)-3:]
			}
			f.assertOutput(t, j, r, want)
			f.assertRuns(t, 1, 0)
			f.assertGood(t)
		})
	}
}
