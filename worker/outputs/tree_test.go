package outputs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// TestFormats: an output directory has the message types that the command asked for, and all
// messages are stored.
func TestFormats(t *testing.T) {
	for format, c := range map[repb.Command_OutputDirectoryFormat]struct{ tree, root bool }{
		repb.Command_TREE_ONLY:          {tree: true},
		repb.Command_DIRECTORY_ONLY:     {root: true},
		repb.Command_TREE_AND_DIRECTORY: {tree: true, root: true},
	} {
		t.Run(format.String(), func(t *testing.T) {
			root := &inputRoot{dir: t.TempDir()}
			check(t, os.MkdirAll(filepath.Join(root.dir, "d", "below"), 0o755))
			check(t, os.WriteFile(filepath.Join(root.dir, "d", "below", "file"), []byte("text"), 0o644))
			store, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 20})
			check(t, err)
			t.Cleanup(func() { check(t, store.Close()) })
			spec, err := ParseSpec(&repb.Command{OutputPaths: []string{"d"}, OutputDirectoryFormat: format})
			check(t, err)
			policy := Policy{}
			check(t, policy.Validate(1<<20))
			o := New(Options{
				Spec: spec, Policy: policy, Function: digest.SHA256, Root: root, Inputs: noDirectories{}, Store: store, Vacated: true,
			})
			defer o.Release()
			in, err := os.OpenRoot(root.dir)
			check(t, err)
			defer in.Close()
			check(t, o.Collect(t.Context(), in))
			out := o.Result.GetOutputDirectories()[0]
			if (out.GetTreeDigest() != nil) != c.tree || (out.GetRootDirectoryDigest() != nil) != c.root {
				t.Fatalf("the directory is %v", out)
			}
			want := 1 // the file
			if c.tree {
				want++
			}
			if c.root {
				want += 2
			}
			if len(o.blobs) != want {
				t.Errorf("%d blobs are to be uploaded, want %d", len(o.blobs), want)
			}
		})
	}
}

// countedInputs counts how often each input directory is read.
type countedInputs struct {
	noDirectories
	encoded map[digest.Digest][]byte
	asked   map[digest.Digest]int
}

func (c countedInputs) Directory(_ context.Context, d digest.Digest) (*tree.Directory, error) {
	c.asked[d]++
	return tree.Parse(digest.SHA256, c.encoded[d])
}

func (c countedInputs) add(b []byte) *repb.Digest {
	d := digest.Of(digest.SHA256, b)
	c.encoded[d] = b
	return d.Proto()
}

// TestUnchangedDirectoriesAreAskedForOnce, however many paths they have: those that were encoded as
// usual, and those that were not, or are above such a one, which are reported as such each time.
func TestUnchangedDirectoriesAreAskedForOnce(t *testing.T) {
	for name, usual := range map[string]bool{"usual": true, "unusual": false} {
		t.Run(name, func(t *testing.T) {
			in := countedInputs{encoded: map[digest.Digest][]byte{}, asked: map[digest.Digest]int{}}
			leaf, err := proto.Marshal(&repb.Directory{Files: []*repb.FileNode{{Name: "f", Digest: of("text").Proto()}}})
			check(t, err)
			if !usual {
				leaf = append([]byte{0x2a, 0}, leaf...) // the last field first
			}
			below := in.add(leaf)
			middle, err := proto.Marshal(&repb.Directory{Directories: []*repb.DirectoryNode{
				{Name: "a", Digest: below}, {Name: "b", Digest: below},
			}})
			check(t, err)
			top, err := digest.FromProto(digest.SHA256, in.add(middle))
			check(t, err)
			store, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 20})
			check(t, err)
			t.Cleanup(func() { check(t, store.Close()) })
			o := New(Options{Function: digest.SHA256, Inputs: in, Store: store})
			defer o.Release()
			b := &treeBuilder{o: o, seen: map[digest.Digest]bool{}, unusual: map[digest.Digest]bool{}}
			for range 3 {
				if _, ok, err := b.unchanged(t.Context(), top, 0); err != nil || ok != usual {
					t.Errorf("it is as usual: %t, %v", ok, err)
				}
			}
			for d, n := range in.asked {
				if n != 1 {
					t.Errorf("%s was asked for %d times", d, n)
				}
			}
			if len(in.asked) != 2 {
				t.Errorf("%d directories were asked for", len(in.asked))
			}
		})
	}
}

// TestListingEndsWithItsContext: cancellation does not wait for the listing of a very large folder.
func TestListingEndsWithItsContext(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	check(t, err)
	defer root.Close()
	check(t, root.WriteFile("file", nil, 0o600))
	b := &treeBuilder{o: New(Options{})}
	if entries, err := b.readDir(t.Context(), &folder{root: root}); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if entries, err := b.readDir(ctx, &folder{root: root}); !errors.Is(err, context.Canceled) || entries != nil {
		t.Errorf("with a context that has ended: %v, %v", entries, err)
	}
}

// TestPolicies: the default of a limit is what the store can hold; a set limit stays.
func TestPolicies(t *testing.T) {
	for _, c := range []struct{ p, want Policy }{
		{Policy{}, Policy{Bytes: 100, Files: defaultMaxOutputFiles, Scratch: 100}},
		{Policy{Bytes: 1, Files: 2, Scratch: 3}, Policy{Bytes: 1, Files: 2, Scratch: 3}},
	} {
		if err := c.p.Validate(100); err != nil || c.p != c.want {
			t.Errorf("%+v, %v; want %+v", c.p, err, c.want)
		}
	}
	for _, p := range []Policy{{Bytes: -1}, {Files: -1}, {Scratch: -1}} {
		if err := p.Validate(100); err == nil || !strings.Contains(err.Error(), "negative") {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// A named is an entry of a folder that has only a name.
type named struct{ fs.DirEntry }

func (named) Name() string { return "n" }

// TestTooManyNames: directories hold as many names as they may, and not one more, all told.
func TestTooManyNames(t *testing.T) {
	o := New(Options{})
	all := make([]fs.DirEntry, maxOutputNames)
	for i := range all {
		all[i] = named{}
	}
	for _, some := range [][]fs.DirEntry{all[:1], all[1:], nil} {
		if err := o.admitNames(some); err != nil {
			t.Error(err)
		}
	}
	if err := o.admitNames(all[:1]); !errors.Is(err, ErrTooMuch) {
		t.Errorf("one more: %v", err)
	}
}
