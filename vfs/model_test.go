package vfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// Environment variables of TestModel: how many seeds to try, from which on, and
// how many steps each.
const (
	modelSeeds = "FORERUNNER_MODEL_SEEDS"
	modelFirst = "FORERUNNER_MODEL_FIRST"
	modelSteps = "FORERUNNER_MODEL_STEPS"
)

// TestModel does the same random steps in a root and in a plain folder of the
// file system below, which is the model, and compares the outcome of every step,
// error codes included, and the whole tree now and then. The first step that
// differs is printed together with the fewest steps found that show it.
//
// Not compared, for it is not the same on the file systems of the kernel either:
//   - Inode and device numbers; only which names are the same file. (Overlayfs
//     gives a file another number when it is first written to.)
//   - Size and link count of directories: each file system counts in its own way.
//   - Times of the test itself: they are "now". Access and change times: the
//     access time of an input is kept nowhere.
//   - The modification time of an input that was changed without touching its
//     content (chmod, rename) and is then opened for writing: metacopy brings its
//     content up only then and leaves the time of doing so. The test puts it back.
//   - Where a directory's entries lie (lseek other than back to the beginning).
//   - Offsets beyond what ext4 can hold, where the step concerns an input as well:
//     FUSE has no such limit.
//   - The flag "immutable" of statx(2), which EROFS gives all that it shows.
//   - The link count of an open input that was removed: overlayfs does not change
//     what is below it, so by the descriptor it goes on being 1.
//   - copy_file_range: from an input that was not written to, which is on another
//     file system than its copy will be, it is EXDEV. Programs must expect that,
//     and the test does what they do then.
//   - Extended attributes of an input that was not written to: there are none, and
//     the error is ENOTSUP where others have ENODATA. (Overlayfs looks for its
//     own at each lookup; that the FUSE layer has none saves all these questions.)
//   - Attributes of an input changed through a descriptor open for reading only,
//     which fails with EEXIST once another file was moved to its name.
//   - Maps of a file that was opened for reading only: overlayfs goes on showing
//     the input in them after the file was written to.
func TestModel(t *testing.T) {
	seeds, first, n := number(t, modelSeeds, 3), number(t, modelFirst, 1), number(t, modelSteps, 400)
	bothWays(t, func(t *testing.T, f *FS) {
		m := newModel(t, f)
		for seed := first; seed < first+seeds; seed++ {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { m.try(t, uint64(seed), n) })
		}
	})
	t.Run("made ahead", func(t *testing.T) {
		f := openFS(t, Options{Ready: 1})
		m := newModel(t, f)
		ready(t, f, nil)
		for seed := first; seed < first+(seeds+1)/2; seed++ {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { m.try(t, uint64(seed), n) })
		}
	})
	t.Run("copied", func(t *testing.T) {
		m := newModel(t, openFS(t, Options{CopyBytes: 1 << 30}))
		m.copied = true
		for seed := first; seed < first+(seeds+1)/2; seed++ {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { m.try(t, uint64(seed), n) })
		}
	})
	for name, widen := range map[string]func(*modelTree){
		"image of the root":        (*modelTree).widen,
		"images of its folders":    (*modelTree).widenFolders,
		"images of nested folders": (*modelTree).widenNested,
		"one image of all folders": (*modelTree).widenTogether,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := first; seed < first+(seeds+1)/2; seed++ {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					src := vfstest.NewSource(t)
					m := newModel(t, openImageFS(t, src, nil))
					m.learnt, m.widen = src, widen
					m.try(t, uint64(seed), n)
				})
			}
		})
	}
}

// TestModelOfItself shows that the steps have but one outcome, and that a
// difference is seen: the model is compared with itself, then with a changed copy.
func TestModelOfItself(t *testing.T) {
	m := newModel(t, openFS(t, Options{}))
	r := rand.New(rand.NewPCG(1, 1))
	tree := makeTree(r, "", 2)
	steps := makeSteps(r, tree.paths("/"), 400)
	first, second := m.plain(t, tree, steps), m.plain(t, tree, steps)
	if i := firstDifference(first, second); i >= 0 {
		t.Errorf("step %d, %+v: the model is not of one mind:\n%s\n%s", i, steps[i], first[i], second[i])
	}
	ok := 0
	for i, s := range steps {
		if s.Do != "check" && (strings.HasPrefix(first[i], "ok") || strings.Contains(first[i], " bytes ")) {
			ok++
		}
	}
	if ok < len(steps)/8 {
		t.Errorf("only %d of %d steps succeed", ok, len(steps))
	}
	tree.entries = tree.entries[1:]
	if firstDifference(first, m.plain(t, tree, steps)) < 0 {
		t.Error("a file that is missing makes no difference")
	}
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

type model struct {
	fs       *FS
	dir      string
	operator *helper
	learnt   *vfstest.Source  // if not nil, roots show metadata images, made in advance
	widen    func(*modelTree) // makes a tree large enough for them
	copied   bool             // roots show copies
}

func newModel(t *testing.T, f *FS) *model {
	return &model{fs: f, dir: t.TempDir(), operator: startChild(t, "helper")}
}

func (m *model) try(t *testing.T, seed uint64, n int) {
	r := rand.New(rand.NewPCG(seed, 0))
	tree := makeTree(r, "", 2)
	steps := makeSteps(r, tree.paths("/"), n)
	if m.copied {
		tree.inSeconds()
	}
	if m.learnt != nil {
		m.widen(tree)
		learn(t, m.fs, m.learnt, lookAround(t), tree.other(1).store(t, m.learnt), tree.other(2).store(t, m.learnt))
		local(t, m.learnt, tree.store(t, m.learnt))
	}
	want, got := m.plain(t, tree, steps), m.root(t, tree, steps)
	at := firstDifference(got, want)
	if at < 0 {
		return
	}
	t.Errorf("seed %d, step %d of %d: %s\n%s", seed, at, len(steps), show(steps[at]), differing(got[at], want[at]))
	steps = m.shrink(t, tree, steps[:at+1])
	want, got = m.plain(t, tree, steps), m.root(t, tree, steps)
	var b strings.Builder
	for i, s := range steps {
		if got[i] == want[i] {
			fmt.Fprintf(&b, "%s\n\t%s\n", show(s), got[i])
		} else {
			fmt.Fprintf(&b, "%s\n%s", show(s), differing(got[i], want[i]))
		}
	}
	t.Errorf("fewest steps found that differ:\n%s", &b)
}

// differing returns the lines of two outcomes that are not in both.
func differing(got, want string) string {
	var b strings.Builder
	have, wanted := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range have {
		if !slices.Contains(wanted, line) {
			fmt.Fprintf(&b, "\troot:  %s\n", strings.TrimSpace(line))
		}
	}
	for _, line := range wanted {
		if !slices.Contains(have, line) {
			fmt.Fprintf(&b, "\tmodel: %s\n", strings.TrimSpace(line))
		}
	}
	return b.String()
}

func show(s step) string {
	b, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func firstDifference(got, want []string) int {
	for i := range got {
		if got[i] != want[i] {
			return i
		}
	}
	return -1
}

// shrink leaves out steps as long as the outcome of the last one differs.
func (m *model) shrink(t *testing.T, tree *modelTree, steps []step) []step {
	end := time.Now().Add(20 * time.Second)
	last := steps[len(steps)-1]
	for size := len(steps) / 2; size > 0; size /= 2 {
		for i := 0; i < len(steps)-1 && time.Now().Before(end); {
			fewer := slices.Concat(steps[:i], steps[min(i+size, len(steps)-1):])
			at := firstDifference(m.root(t, tree, fewer), m.plain(t, tree, fewer))
			if at < 0 || fewer[at] != last {
				i += size
				continue
			}
			steps = fewer[:at+1]
		}
	}
	return steps
}

// plain runs steps in a folder of the file system that holds the writable layers.
func (m *model) plain(t *testing.T, tree *modelTree, steps []step) []string {
	t.Helper()
	dir := filepath.Join(m.dir, "plain")
	if err := errors.Join(os.Mkdir(dir, 0o755), tree.write(dir)); err != nil {
		t.Fatal(err)
	}
	outcomes := m.run(t, dir, steps)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return outcomes
}

// root runs steps in a root.
func (m *model) root(t *testing.T, tree *modelTree, steps []step) []string {
	t.Helper()
	src := m.learnt
	if src == nil {
		src = vfstest.NewSource(t)
	}
	root := tree.store(t, src)
	if m.copied {
		src.Know(t, root)
	}
	ahead := m.fs.ready != nil && len(spareRoots(m.fs)) > 0
	r, err := m.fs.NewRoot(t.Context(), RootSpec{Name: "model", Digest: root, Source: src})
	if err != nil {
		t.Fatal(err)
	}
	if r.wasReady != ahead || m.fs.ready != nil && !ahead {
		t.Errorf("made ahead: %t, spare roots: %t", r.wasReady, ahead)
	}
	if isCopied(r) != m.copied {
		t.Errorf("copied: %t", isCopied(r))
	}
	if m.learnt != nil && (imagesOf(r) == 0 || r.images.Grown()) {
		t.Error("the root shows no image that is known")
	}
	outcomes := m.run(t, r.Path(), steps)
	if err := errors.Join(r.Err(), r.Close()); err != nil {
		t.Fatal(err)
	}
	return outcomes
}

func (m *model) run(t *testing.T, dir string, steps []step) []string {
	t.Helper()
	b, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	answer := m.operator.do("operate", dir, string(b))
	var outcomes []string
	if err := json.Unmarshal([]byte(answer), &outcomes); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	return outcomes
}
