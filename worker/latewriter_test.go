package worker

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
)

// Outputs of the late writer, which has them changed when it has ended.
const lateOutputs = 6

// notPermitted is how the late writer ends where the kernel does not let it.
const notPermitted = 77

// lateWriter returns a script that becomes the late writer. It needs no input, as those roots must
// not have any that are plain folders.
func lateWriter(t *testing.T) string { return compiled(t, "../cas/disk/testdata/latewriter.c") }

// compiled returns a script that becomes a program, whose arguments are to follow.
func compiled(t *testing.T, source string, options ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	out, err := exec.Command("gcc", slices.Concat([]string{"-Os", "-s", "-o", program, source}, options)...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	b, err := os.ReadFile(program)
	check(t, err)
	return "p=$(mktemp) && echo " + base64.StdEncoding.EncodeToString(b) + " | base64 -d >$p && chmod 755 $p && exec $p "
}

func lateOutputPaths() (paths []string) {
	for i := range lateOutputs {
		paths = append(paths, fmt.Sprintf("out%d", i))
	}
	return paths
}

// lateFarms are the ways in which an output becomes a blob.
var lateFarms = map[string]struct {
	roots   vfs.Options
	sandbox *sandbox.Options
	inputs  tree // with none a root is a plain folder
}{
	"plain":             {vfs.Options{Method: vfs.FUSE}, &sandbox.Options{}, nil},
	"overlay":           {vfs.Options{Method: vfs.FUSE}, &sandbox.Options{}, tree{"in": "input"}},
	"links":             {vfs.Options{Method: vfs.HardLink}, &sandbox.Options{}, tree{"in": "input"}},
	"bare links":        {vfs.Options{Method: vfs.HardLink, DisableOverlay: true}, &sandbox.Options{}, tree{"in": "input"}},
	"memory":            {vfs.Options{Method: vfs.FUSE, UpperMemory: 96 << 20}, &sandbox.Options{}, nil},
	"no sandbox, plain": {vfs.Options{Method: vfs.FUSE}, nil, nil},
	"no sandbox":        {vfs.Options{Method: vfs.FUSE}, nil, tree{"in": "input"}},
	"no sandbox, links": {vfs.Options{Method: vfs.HardLink, DisableOverlay: true}, nil, tree{"in": "input"}},
}

// TestLateWriters: whatever a command does to its outputs after its end, no blob changes.
func TestLateWriters(t *testing.T) {
	program := lateWriter(t)
	for name, c := range lateFarms {
		t.Run(name, func(t *testing.T) {
			f := newFarmWith(t, c.roots, nil, farmOptions{sandbox: c.sandbox})
			for _, mode := range []string{"uring", "uring-buffered", "pinned", "aio", "mapping", "splice"} {
				r := f.run(t, spec{
					inputs: c.inputs, shell: program + mode + fmt.Sprintf(" %d", lateOutputs), paths: lateOutputPaths(),
				})
				assertLate(t, mode, c.sandbox != nil, r)
			}
			assertStaysRight(t, f.local)
			f.assertGood(t)
		})
	}
}

// assertLate fails the test unless the late writer was at work, or was not permitted to be.
func assertLate(t *testing.T, mode string, mayBeRefused bool, r *repb.ExecuteResponse) {
	t.Helper()
	if mayBeRefused && r.GetResult().GetExitCode() == notPermitted {
		t.Logf("%s: %s", mode, r.GetResult().GetStderrRaw())
		return
	}
	if r.GetStatus() != nil {
		t.Errorf("%s: %v", mode, r.GetStatus())
		return
	}
	assertOK(t, r)
	if n := len(r.GetResult().GetOutputFiles()); n != lateOutputs {
		t.Errorf("%s: %d outputs", mode, n)
	}
}

// TestDescriptorsPassedAway: a command hands what it has open to another action's, which writes to
// it, and opens it again, for as long as it runs.
func TestDescriptorsPassedAway(t *testing.T) {
	program := lateWriter(t)
	for name, c := range lateFarms {
		t.Run(name, func(t *testing.T) {
			f := newFarmWith(t, c.roots, nil, farmOptions{sandbox: c.sandbox, slots: 2})
			socket := "forerunner-test-" + filepath.Base(t.TempDir()) + fmt.Sprint(os.Getpid())
			keeper := f.start(t, spec{shell: program + "keep " + socket, doNotCache: true})
			r := f.run(t, spec{
				inputs: c.inputs, shell: fmt.Sprintf("%s pass %d %s", program, lateOutputs, socket), paths: lateOutputPaths(),
			})
			assertLate(t, "pass", c.sandbox != nil, r)
			assertStaysRight(t, f.local)
			f.scheduler.withdraw(keeper)
			f.assertGood(t)
		})
	}
}

// assertStaysRight hashes all blobs of a store when writers that are late have had their time. What
// they write stays.
func assertStaysRight(t *testing.T, s *disk.Store) {
	t.Helper()
	time.Sleep(400 * time.Millisecond)
	if assertAllRight(t, s) == 0 {
		t.Error("the store is empty")
	}
}

// assertAllRight hashes all blobs of a store.
func assertAllRight(t *testing.T, s *disk.Store) (blobs int) {
	t.Helper()
	check(t, filepath.WalkDir(s.Dir(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(s.Dir(), path)
		if err != nil {
			return err
		}
		want, ok := disk.ParseBlobPath(filepath.ToSlash(name))
		if !ok {
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		if got, err := digest.OfReader(want.Function(), file); err != nil || got != want {
			t.Errorf("blob %s has the bytes of %s, %v", want, got, err)
		}
		blobs++
		return nil
	}))
	return blobs
}

// TestSparseOutput: an output that is too large is refused before it is read, and the next action
// runs.
func TestSparseOutput(t *testing.T) {
	f := newFarmOn(t, vfs.Options{Method: vfs.FUSE})
	for _, c := range []struct{ name, shell, want string }{
		{"one", "truncate -s 8T out", `output "out": it has 8796093022208 bytes`},
		{"in a directory", "mkdir out; truncate -s 8T out/f", `"out/f": it has 8796093022208 bytes`},
		{"all together", "mkdir out; truncate -s 1M out/1; truncate -s 1G out/2", "before it have 1048576: more than the 1073741824"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := f.run(t, spec{shell: c.shell, paths: []string{"out"}, inputs: tree{"in": c.name}})
			assertCode(t, r, codes.FailedPrecondition, c.want)
			if !strings.Contains(r.GetStatus().GetMessage(), "tuning.max_output_bytes") {
				t.Errorf("%q does not name the flag", r.GetStatus().GetMessage())
			}
			f.assertGood(t)
		})
	}
}

// TestHashingEnds: an output that takes an hour to hash delays neither the next action after a
// cancellation nor the end of the worker.
func TestHashingEnds(t *testing.T) {
	for name, sandbox := range map[string]*sandbox.Options{"moved": {}, "copied": nil} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store, err := disk.Open(filepath.Join(dir, "vast"), disk.Options{MaxBytes: 1 << 60})
			check(t, err)
			t.Cleanup(func() { check(t, store.Close()) })
			fetches, err := fetch.NewGroup(store, fetch.Options{})
			check(t, err)
			t.Cleanup(fetches.Close)
			f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
				sandbox: sandbox, disk: dir, change: func(o *Options) { o.Store, o.Fetches = store, fetches },
			})
			endless := spec{shell: "truncate -s 8T out", paths: []string{"out"}}
			j := f.start(t, endless)
			j.reaches(t, "uploading")
			f.scheduler.withdraw(j)
			f.assertGood(t)
			j = f.start(t, endless)
			j.reaches(t, "uploading")
			f.drain()
			f.abort()
			f.wait(t)
		})
	}
}
