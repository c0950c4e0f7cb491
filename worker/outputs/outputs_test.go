package outputs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/fault"
)

// inputRoot is a Root that is only a folder, in which some files are inputs.
type inputRoot struct {
	dir    string
	inputs map[string]vfs.Input
	look   func() // called for each question about a file; may be nil
	// entered counts the folders that were entered, and open those of them that are open; may be nil.
	entered map[string]int
	open    *int
}

func (f *inputRoot) Unchanged(path string) (vfs.Input, bool) {
	if f.look != nil {
		f.look()
	}
	in, ok := f.inputs[path]
	return in, ok
}

// Written says that every file but inputs is a written one, which can be moved.
func (f *inputRoot) Written(path string) (string, bool) {
	_, ok := f.Unchanged(path)
	return filepath.Join(f.dir, path), !ok
}

// Enter returns a Dir with the same answers for a subfolder.
func (f *inputRoot) Enter(path string) (vfs.Dir, error) {
	dir := filepath.Join(f.dir, path)
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil, syscall.ENOTDIR
	}
	in := &inputRoot{dir: dir, inputs: map[string]vfs.Input{}, look: f.look, entered: f.entered, open: f.open}
	for name, input := range f.inputs {
		if below, ok := strings.CutPrefix(name, path+"/"); ok {
			in.inputs[below] = input
		}
	}
	if f.entered != nil {
		f.entered[dir]++
		*f.open++
	}
	return in, nil
}

func (f *inputRoot) Close() {
	if f.open != nil {
		*f.open--
	}
}

type noDirectories struct{}

func (noDirectories) Directory(context.Context, digest.Digest) (*tree.Directory, error) {
	return nil, errors.New("there are no input directories")
}

func (noDirectories) OpenBlob(context.Context, digest.Digest) (*os.File, error) {
	return nil, errors.New("there are no inputs")
}

// collect makes files in a folder, and returns the outputs of a command whose outputs are at paths.
func collect(t *testing.T, p Policy, files map[string]string, paths ...string) (*Outputs, *inputRoot, error) {
	t.Helper()
	root := &inputRoot{dir: t.TempDir(), inputs: map[string]vfs.Input{}}
	for name, text := range files {
		full := filepath.Join(root.dir, name)
		check(t, os.MkdirAll(filepath.Dir(full), 0o755))
		check(t, os.WriteFile(full, []byte(text), 0o644))
		if text == "input" {
			root.inputs[name] = vfs.Input{Kind: vfs.File, Digest: of(text)}
		}
	}
	o, err := collectFrom(t, root, p, paths...)
	return o, root, err
}

// collectFrom returns the outputs of a command that has worked in root.
func collectFrom(t *testing.T, root *inputRoot, p Policy, paths ...string) (*Outputs, error) {
	t.Helper()
	store, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 8 << 20})
	check(t, err)
	t.Cleanup(func() { check(t, store.Close()) })
	spec, err := ParseSpec(&repb.Command{OutputPaths: paths})
	check(t, err)
	check(t, p.Validate(store.Stats().MaxBytes))
	o := New(Options{
		Spec: spec, Policy: p, Function: digest.SHA256, Root: root, Inputs: noDirectories{}, Store: store, Vacated: true,
	})
	t.Cleanup(o.Release)
	in, err := os.OpenRoot(root.dir)
	check(t, err)
	t.Cleanup(func() { check(t, in.Close()) })
	return o, o.Collect(t.Context(), in)
}

func of(text string) digest.Digest { return digest.Of(digest.SHA256, []byte(text)) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func file(path, text string) *repb.OutputFile {
	return &repb.OutputFile{Path: path, Digest: of(text).Proto()}
}

// TestInputsStayUnread: created files are moved away; unchanged inputs are named by their digests
// and stay in place.
func TestInputsStayUnread(t *testing.T) {
	o, root, err := collect(t, Policy{}, map[string]string{"made": "new", "in": "input"}, "made", "in", "none")
	check(t, err)
	want := &repb.ActionResult{OutputFiles: []*repb.OutputFile{file("made", "new"), file("in", "input")}}
	if !proto.Equal(o.Result, want) {
		t.Errorf("the result is %v, want %v", o.Result, want)
	}
	if unread := slices.Collect(o.Unread()); !slices.Equal(unread, []digest.Digest{of("input")}) {
		t.Errorf("unread are %v", unread)
	}
	if needs := slices.Collect(o.Needs()); len(needs) != 2 || !slices.Contains(needs, of("new")) {
		t.Errorf("the result needs %v", needs)
	}
	for name, stays := range map[string]bool{"made": false, "in": true} {
		if _, err := os.Lstat(filepath.Join(root.dir, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// otherInputs are files of a store that is not the worker's own.
type otherInputs struct {
	noDirectories
	store *disk.Store
}

func (o otherInputs) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	return o.store.OpenBlob(ctx, d)
}

// tooLarge are inputs that the worker's store cannot hold.
type tooLarge struct{ noDirectories }

func (tooLarge) OpenBlob(context.Context, digest.Digest) (*os.File, error) {
	return nil, cas.ErrNoSpace
}

// TestUnreadInputsAreUploadedAgain: if a result names an input that storage does not have verified
// and that the worker has not read, the worker fetches it from the source of inputs.
func TestUnreadInputsAreUploadedAgain(t *testing.T) {
	o, _, err := collect(t, Policy{}, map[string]string{"in": "input"}, "in")
	check(t, err)
	farm := servertest.Start(t, servertest.Config{})
	o.opts.Storage = casclient.New(farm.Conn, casclient.Options{})
	elsewhere, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 20})
	check(t, err)
	t.Cleanup(func() { check(t, elsewhere.Close()) })
	o.opts.Inputs = otherInputs{store: elsewhere}
	if err := o.Upload(t.Context()); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("nobody has it, and the error is %v", err)
	}
	o.opts.Inputs = tooLarge{}
	if err := o.Upload(t.Context()); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("the worker has no room for it, and the error is %v", err)
	}
	o.opts.Inputs = otherInputs{store: elsewhere}
	check(t, elsewhere.PutBytes(t.Context(), of("input"), []byte("input")))
	check(t, o.Upload(t.Context()))
	if !farm.Store.Has(of("input")) {
		t.Error("storage does not have what the result names")
	}
}

// TestOutputsAreTheInstanceNames: if the worker's store is that of a storage that isolates content,
// its instance name has the outputs without an upload, for which there may be no room beside them.
func TestOutputsAreTheInstanceNames(t *testing.T) {
	const size = 5 << 20
	farm := servertest.Start(t, servertest.Config{Store: disk.Options{MaxBytes: 8 << 20, Isolate: true}})
	text := strings.Repeat("x", size)
	root := &inputRoot{dir: t.TempDir()}
	check(t, os.WriteFile(filepath.Join(root.dir, "made"), []byte(text), 0o644))
	in, err := os.OpenRoot(root.dir)
	check(t, err)
	defer in.Close()
	var policy Policy
	check(t, policy.Validate(size))
	o := New(Options{
		Spec: Spec{Paths: []Path{{Given: "made", Full: "made"}}}, Policy: policy, Function: digest.SHA256, Root: root,
		Inputs: noDirectories{}, Store: farm.Store,
		Storage:  casclient.New(farm.Conn, casclient.Options{}).WithInstance("a", digest.SHA256),
		Instance: "a", Vacated: true,
	})
	defer o.Release()
	check(t, o.Collect(t.Context(), in))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check(t, o.Upload(ctx))
	for name, want := range map[string]bool{"a": true, "b": false} {
		if got := farm.Store.Of(name).Contains(of(text)); got != want {
			t.Errorf("%s has the output: %t", name, got)
		}
	}
}

// TestOverlappingPathsAreCopied: one output is part of another, so none is moved away from where
// the other looks.
func TestOverlappingPathsAreCopied(t *testing.T) {
	o, root, err := collect(t, Policy{}, map[string]string{"dir/made": "new"}, "dir/made", "dir")
	check(t, err)
	if len(o.Result.GetOutputFiles()) != 1 || len(o.Result.GetOutputDirectories()) != 1 {
		t.Errorf("the result is %v", o.Result)
	}
	if _, err := os.Lstat(filepath.Join(root.dir, "dir/made")); err != nil {
		t.Error(err)
	}
}

func TestTooMuch(t *testing.T) {
	files := map[string]string{"a": "12345", "b": "12345", "in": "input"}
	for name, c := range map[string]struct {
		policy  Policy
		tooMuch bool
	}{
		"bytes":         {Policy{Bytes: 9}, true},
		"files":         {Policy{Files: 1}, true},
		"just so much":  {Policy{Bytes: 10, Files: 2}, false},
		"without bound": {Policy{}, false},
	} {
		_, _, err := collect(t, c.policy, files, "a", "b", "in")
		if errors.Is(err, ErrTooMuch) != c.tooMuch || !c.tooMuch && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.tooMuch && fault.Status(t.Context(), err).Code() != codes.FailedPrecondition {
			t.Errorf("%s: the client is told %v", name, fault.Status(t.Context(), err))
		}
	}
}

// TestTooMuchText: the names in a folder are in memory while its message is made, whatever its
// files contain.
func TestTooMuchText(t *testing.T) {
	root := &inputRoot{dir: t.TempDir()}
	dir := filepath.Join(root.dir, "d")
	check(t, os.Mkdir(dir, 0o755))
	target := strings.Repeat("x", 4000)
	for i := range maxOutputText/len(target) + 1 {
		check(t, os.Symlink(target, filepath.Join(dir, strconv.Itoa(i))))
	}
	if _, err := collectFrom(t, root, Policy{}, "d"); !errors.Is(err, ErrTooMuch) || !strings.Contains(err.Error(), "targets of symlinks") {
		t.Errorf("got %v", err)
	}
}
